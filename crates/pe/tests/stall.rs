//! A server that stalls for 200 ms once a second: a fixed rate shows the stall, a closed loop hides
//! it. If a server stalls while the warm-up ends, the waiting requests belong to the warm-up.

mod fake;

use std::time::{Duration, Instant};

use evenkeel_pe::{Options, PeError, Report, Target, run, run_together};
use evenkeel_rpc::RpcServerHandle;

use fake::Stalls;

fn fake(stalls: Stalls) -> (RpcServerHandle, Target) {
    fake::fake(stalls, 100)
}

fn measured(target: &Target, line: &str) -> Report {
    let options = Options::of_line(line).expect("parses");
    run(target, &options).unwrap_or_else(|failure| panic!("{line}: {failure}"))
}

#[test]
fn a_fixed_rate_shows_a_stall_that_a_closed_loop_hides() {
    let (server, target) = fake(Stalls::EachPeriod);
    let open = measured(&target, "--rows=9000 --rate=500 --warmup=1 --duration=5 randomRead 1");
    let closed = measured(&target, "--rows=1000 --warmup=1 --duration=5 randomRead 1");
    server.shutdown(Duration::from_secs(1));

    // A fifth of all requests is due while the server stalls and waits up to 200 ms: one in a
    // hundred waits 190 or more.
    let late = open.latency.p99_us;
    assert!((150_000.0..400_000.0).contains(&late), "at a fixed rate: {:?}", open.latency);
    // Every arrival except the first row is measured, as in HBase's tool.
    assert!((2499..=2500).contains(&open.latency.count), "{:?}", open.latency);
    assert!(open.latency.count + 1 >= open.tally.requests);
    // In a closed loop one request a second meets the stall, among thousands.
    assert!(closed.latency.count > 2000, "{:?}", closed.latency);
    assert!(closed.latency.p99_us < 50_000.0, "in a closed loop: {:?}", closed.latency);
    assert!(closed.latency.max_us > 150_000.0, "{:?}", closed.latency);
    // The warm-up is separate, and time is divided into intervals.
    assert!(open.warmup.as_ref().is_some_and(|warmup| warmup.count > 300));
    assert!((5..=7).contains(&open.intervals.len()), "{}", open.intervals.len());
    assert_eq!(open.intervals.iter().map(|i| i.requests).sum::<u64>(), open.tally.requests);
    // One request meets the stall, the others are sent late: the intervals distinguish them.
    assert!(open.intervals.iter().any(|i| i.latency.p99_us > 150_000.0), "{:?}", open.intervals);
    assert!(open.intervals.iter().take(5).all(|i| i.service.p99_us < 50_000.0), "{:?}", open.intervals);
    assert!(open.intervals.iter().take(5).all(|i| i.own_cores > 0.0), "{:?}", open.intervals);
    assert_eq!(open.tally.cells_read, open.tally.requests);
    assert_eq!(open.tally.bytes_read, 100 * open.tally.requests);
}

const MS: fn(u64) -> Duration = Duration::from_millis;

#[test]
fn requests_due_in_the_warm_up_count_as_warm_up() {
    let (server, target) = fake(Stalls::Once(MS(500)..MS(1200)));
    let report = measured(&target, "--rows=1000 --rate=500 --warmup=1 --duration=2 randomRead 1");
    server.shutdown(Duration::from_secs(1));

    // Due from 1 s to 3 s, so no arrival of the warm-up's last half second is included. The longest
    // of those waited 0.7 s.
    assert!((999..=1000).contains(&report.latency.count), "{:?}", report.latency);
    assert!(
        (100_000.0..450_000.0).contains(&report.latency.max_us),
        "the stall's rest: {:?}",
        report.latency
    );
    let warmup = report.warmup.expect("a warm-up");
    assert!((499..=501).contains(&warmup.count), "sent or not, they are counted: {warmup:?}");
    assert!(warmup.max_us > 600_000.0, "{warmup:?}");
}

#[test]
fn a_closed_loop_is_measured_when_the_warm_up_has_ended() {
    let (server, target) = fake(Stalls::Once(MS(500)..MS(1600)));
    let line = "--rows=1000 --warmup=1 --duration=1 --interval=0.25 randomRead 3";
    let report = measured(&target, line);
    server.shutdown(Duration::from_secs(1));

    assert!(report.warmup.as_ref().is_some_and(|w| w.max_us > 1_000_000.0), "{:?}", report.warmup);
    // The measured second begins after the stall: there are rows in all of it.
    assert!(report.intervals.iter().take(4).all(|i| i.requests > 0), "{:?}", report.intervals);
    assert!(
        (1.0..1.4).contains(&report.seconds) && report.latency.max_us < 400_000.0,
        "{:?}",
        report.latency
    );
}

#[test]
fn concurrent_runs_share_one_measured_period() {
    let (stalling, slow) = fake(Stalls::Once(MS(500)..MS(1600)));
    let (server, quick) = fake(Stalls::Never);
    let options = |line| Options::of_line(line).expect("parses");
    let warm = options("--rows=1000 --warmup=1 --duration=1 randomRead 2");
    let other = options("--rows=1000 --warmup=0.5 --duration=1 randomRead 2");
    let absent = options("--families=2 randomRead 1");
    let (begun, tests) = (Instant::now(), [(&slow, &warm), (&quick, &other), (&quick, &absent)]);
    let reports = run_together(&tests);
    let took = begun.elapsed().as_secs_f64();
    stalling.shutdown(Duration::from_secs(1));
    server.shutdown(Duration::from_secs(1));

    let [Ok(a), Ok(b), Err(PeError::Table(_))] = &reports[..] else { panic!("{reports:?}") };
    assert!((a.began_unix_s - b.began_unix_s).abs() < 0.1);
    assert!(
        (1.0..1.4).contains(&a.seconds) && (1.0..1.4).contains(&b.seconds),
        "{} {}",
        a.seconds,
        b.seconds
    );
    // Measured immediately after its warm-up of 0.5 s, the quick one would have ended long before;
    // it waits for the stall of the other.
    assert!(took < 5.0 && a.intervals[0].requests > 0 && b.intervals[0].requests > 0);
}

#[test]
fn rows_are_run_and_measured_as_hbases_tool_does() {
    let (server, target) = fake(Stalls::Never);
    let report =
        measured(&target, "--rows=300 --cycles=2 --sampleRate=0.5 --measureAfter=9 sequentialRead 4");
    server.shutdown(Duration::from_secs(1));
    assert_eq!(report.tally.rows, 4 * 2 * 150);
    assert_eq!((report.tally.requests, report.tally.errors), (1200, 0));
    // Rows 0, 2, 4, 6 and 8 of each client and cycle are not measured.
    assert_eq!(report.latency.count, 4 * 2 * (150 - 5));
}

#[test]
fn an_absent_cluster_and_a_missing_table_fail_differently() {
    let (server, target) = fake(Stalls::Never);
    let other = Options::of_line("--families=2 randomRead 1").expect("parses");
    let failure = run(&target, &other).expect_err("other families");
    assert!(matches!(failure, PeError::Table(_)) && failure.exit_status() == 4, "{failure}");
    server.shutdown(Duration::from_secs(1));

    let mut client = target.client.clone();
    client.pause = Duration::from_millis(1);
    let absent = Target { name: "absent".into(), client };
    let failure = run(&absent, &Options::of_line("randomRead 1").expect("parses")).expect_err("nobody");
    assert!(matches!(failure, PeError::Cluster(_)) && failure.exit_status() == 3, "{failure}");
}
