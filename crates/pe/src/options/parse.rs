//! Parses the command line into [`Options`].

use std::path::PathBuf;

use super::Options;
use crate::command::Command;

/// A parsed command line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parsed {
    /// The run; `None` for `--help`.
    pub options: Option<Options>,
    /// `host:port` of servers of the cluster; empty: from the configuration.
    pub target: Vec<String>,
    /// Two named targets for alternating runs.
    pub compare: Vec<(String, String)>,
    /// Rounds of a comparison.
    pub rounds: usize,
    /// The directory that holds `hbase-site.xml`.
    pub config: Option<PathBuf>,
    /// Settings that override it.
    pub define: Vec<(String, String)>,
    /// File of the report as JSON.
    pub json: Option<PathBuf>,
    /// File of the report as a page.
    pub html: Option<PathBuf>,
    /// File of the latencies as an HdrHistogram percentile table.
    pub hgrm: Option<PathBuf>,
    /// File of each interval's latencies as an HdrHistogram log.
    pub hlog: Option<PathBuf>,
    /// Notes for the user.
    pub notes: Vec<String>,
}

/// Tags of 256 bytes, with 3 more each, that fit the 65,535 bytes of a cell's tags.
const TAGS_MAX: usize = 253;
/// The default number of rounds of a comparison.
const ROUNDS: usize = 5;

/// Parses a command line, without the program's name.
///
/// # Errors
/// A message for the user.
pub fn parse(words: &[String]) -> Result<Parsed, String> {
    let mut parsed = Parsed { rounds: ROUNDS, ..Parsed::default() };
    let mut options = Options::default();
    let mut words = words.iter().map(String::as_str).peekable();
    while let Some(word) = words.next() {
        if word == "-h"
            || word.starts_with("--h")
                && word != "--html"
                && !word.starts_with("--html=")
                && !word.starts_with("--hgrm=")
                && !word.starts_with("--hlog=")
        {
            return Ok(parsed);
        }
        if let Some(rest) = word.strip_prefix("-D") {
            let pair = if rest.is_empty() { words.next().unwrap_or_default() } else { rest };
            let (key, value) = pair.split_once('=').ok_or_else(|| format!("-D{pair}: expected key=value"))?;
            parsed.define.push((key.to_owned(), value.to_owned()));
            continue;
        }
        let Some(option) = word.strip_prefix("--") else {
            Command::of_name(word).ok_or_else(|| no_command(word))?;
            let clients = words.next().and_then(|n| n.parse().ok()).filter(|n: &usize| *n > 0);
            options.command = word.to_owned();
            options.clients = clients.ok_or_else(|| format!("{word} needs a number of clients"))?;
            if let Some(more) = words.next() {
                return Err(format!("nothing is expected after the clients: {more}"));
            }
            options.resolve_rows()?;
            check(&options, &parsed)?;
            parsed.options = Some(options);
            return Ok(parsed);
        };
        let (key, value) = option.split_once('=').map_or((option, None), |(k, v)| (k, Some(v.trim())));
        if key == "compare" {
            let first = value.or_else(|| words.next()).unwrap_or_default();
            for pair in first.split(',') {
                parsed.compare.push(named(pair)?);
            }
            while parsed.compare.len() < 2 {
                parsed.compare.push(named(words.next().unwrap_or_default())?);
            }
            continue;
        }
        let bad = |why: &str| format!("--{option}: {why}");
        match flag(&mut options, &mut parsed, key) {
            Some(set) => match value.map_or(Ok(true), truth) {
                Ok(on) => set(&mut options, on),
                Err(why) => return Err(bad(&why)),
            },
            None => {
                let value = value.filter(|v| !v.is_empty()).ok_or_else(|| match known(key) {
                    true => bad("needs a value"),
                    false => bad("no such option"),
                })?;
                set(&mut options, &mut parsed, key, value).map_err(|why| bad(&why))?;
            }
        }
    }
    Err("no command".to_owned())
}

/// The error for an unknown command.
fn no_command(word: &str) -> String {
    match word {
        "metaWrite" | "cleanMeta" => format!(
            "{word} is not supported: it writes nonexistent regions into hbase:meta, or removes them, without the master"
        ),
        class if class.contains('.') => {
            format!("{class}: Java test classes are not supported, only the tool's own commands")
        }
        _ => format!("unknown command: {word}"),
    }
}

fn named(pair: &str) -> Result<(String, String), String> {
    let (name, address) =
        pair.split_once('=').ok_or_else(|| format!("--compare takes NAME=host:port twice, not `{pair}`"))?;
    Ok((name.to_owned(), address.to_owned()))
}

/// Rules across options.
fn check(options: &Options, parsed: &Parsed) -> Result<(), String> {
    let rules = [
        (!options.auto_flush && options.multi_put > 0, "--multiPut needs --autoFlush=true"),
        (options.one_con && options.conn_count.is_some_and(|n| n > 1), "--oneCon or --connCount, not both"),
        (options.value_zipf && options.value_random, "--valueZipf or --valueRandom, not both"),
        (options.sample_rate <= 0.0 || options.sample_rate > 1.0, "--sampleRate is above 0 and at most 1"),
        (options.interval <= 0.0, "--interval is above 0"),
        (options.rows <= 0, "--rows is above 0"),
        (options.rate.is_some_and(|rate| rate <= 0.0 || !rate.is_finite()), "--rate is above 0"),
        (parsed.compare.len() > 2, "--compare takes two targets"),
        (!parsed.compare.is_empty() && !parsed.target.is_empty(), "--compare or --target, not both"),
    ];
    rules.iter().find(|(broken, _)| *broken).map_or(Ok(()), |(_, why)| Err((*why).to_owned()))
}

fn truth(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        other => Err(format!("true or false, not {other}")),
    }
}

/// Sets a flag; `None` if there is no such flag.
fn flag(_: &mut Options, parsed: &mut Parsed, key: &str) -> Option<fn(&mut Options, bool)> {
    Some(match key {
        "nomapred" | "flushCommits" => |_, _| {},
        "asyncPrefetch" => {
            parsed.notes.push("--asyncPrefetch: a scan reads ahead as the client does".to_owned());
            |_, _| {}
        }
        "writeToWAL" => |o, on| o.write_to_wal = on,
        "inmemory" => |o, on| o.inmemory = on,
        "autoFlush" => |o, on| o.auto_flush = on,
        "oneCon" => |o, on| o.one_con = on,
        "latency" => |o, on| o.latency = on,
        "usetags" => {
            let why = "--usetags: cells are sent with KeyValueCodecWithTags; HBase's client drops tags unless it has the same codec";
            parsed.notes.push(why.to_owned());
            |o, on| o.use_tags = on
        }
        "filterAll" => |o, on| o.filter_all = on,
        "valueRandom" => |o, on| o.value_random = on,
        "valueZipf" => |o, on| o.value_zipf = on,
        "addColumns" => |o, on| o.add_columns = on,
        "cacheBlocks" => |o, on| o.cache_blocks = on,
        "poisson" => |o, on| o.poisson = on,
        "progress" => |o, on| o.progress = on,
        _ => return None,
    })
}

/// Returns true if an option with a value has this name.
fn known(key: &str) -> bool {
    set(&mut Options::default(), &mut Parsed::default(), key, "1") != Err(NO_SUCH.to_owned())
}

const NO_SUCH: &str = "no such option";

/// Sets an option that has a value.
fn set(o: &mut Options, parsed: &mut Parsed, key: &str, value: &str) -> Result<(), String> {
    let is_known = set_load(o, key, value)?
        || set_table(o, key, value)?
        || set_requests(o, key, value)?
        || set_run(o, parsed, key, value)?;
    if is_known { Ok(()) } else { Err(NO_SUCH.to_owned()) }
}

/// Sets an option of the amount or the pace of the load. Returns false if it is none of these.
fn set_load(o: &mut Options, key: &str, value: &str) -> Result<bool, String> {
    match key {
        "rows" => o.rows = number(value)?,
        "size" => match number::<f32>(value)? {
            size if size > 1.0 => o.size = size,
            _ => return Err("gigabytes, above 1".to_owned()),
        },
        "cycles" => o.cycles = number(value)?,
        "sampleRate" => o.sample_rate = number(value)?,
        "startRow" => o.start_row = number(value)?,
        "duration" => o.duration = number(value)?,
        "warmup" => o.warmup = number(value)?,
        "measureAfter" => o.measure_after = number(value)?,
        "rate" => o.rate = Some(number(value)?),
        "connCount" => o.conn_count = Some(number(value)?),
        "threads" => o.threads = number(value)?,
        "randomSleep" => o.random_sleep = number(value)?,
        _ => return Ok(false),
    }
    Ok(true)
}

/// Sets an option of the table. Returns false if it is none of these.
fn set_table(o: &mut Options, key: &str, value: &str) -> Result<bool, String> {
    match key {
        "table" => o.table = value.to_owned(),
        "families" => o.families = number(value)?,
        "columns" => o.columns = number(value)?,
        "presplit" => o.presplit = number(value)?,
        "splitPolicy" => o.split_policy = Some(value.to_owned()),
        "replicas" => o.replicas = number(value)?,
        "compress" => {
            o.compress =
                one_of(value, &["LZO", "GZ", "NONE", "SNAPPY", "LZ4", "BZIP2", "ZSTD", "LZMA", "BROTLI"])?
        }
        "encryption" => o.encryption = Some(value.to_owned()),
        "blockEncoding" => {
            o.block_encoding = one_of(value, &["NONE", "PREFIX", "DIFF", "FAST_DIFF", "ROW_INDEX_V1"])?;
        }
        "bloomFilter" => {
            o.bloom_filter = one_of(value, &["NONE", "ROW", "ROWCOL", "ROWPREFIX_FIXED_LENGTH"])?
        }
        "blockSize" => o.block_size = number(value)?,
        "inmemoryCompaction" => {
            o.inmemory_compaction = one_of(value, &["NONE", "BASIC", "EAGER", "ADAPTIVE"])?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Sets an option of the requests. Returns false if it is none of these.
fn set_requests(o: &mut Options, key: &str, value: &str) -> Result<bool, String> {
    match key {
        "valueSize" => o.value_size = number(value)?,
        "bufferSize" => o.buffer_size = number(value)?,
        "multiPut" => o.multi_put = number(value)?,
        "numoftags" => match number(value)? {
            n @ 0..=TAGS_MAX => o.no_of_tags = n,
            _ => return Err(format!("at most {TAGS_MAX}, which fill a cell's 65,535 bytes of tags")),
        },
        "durability" => {
            o.durability = Some(one_of(value, &["SKIP_WAL", "ASYNC_WAL", "SYNC_WAL", "FSYNC_WAL"])?);
        }
        "multiGet" => o.multi_get = number(value)?,
        "caching" => o.caching = number(value)?,
        "scanReadType" => o.scan_read_type = one_of(&value.to_uppercase(), &["DEFAULT", "STREAM", "PREAD"])?,
        "returnPart" => o.return_part = Some(number(value)?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Sets an option of the cluster or the reports, or one that has no effect. Returns false if it is
/// none of these.
fn set_run(o: &mut Options, parsed: &mut Parsed, key: &str, value: &str) -> Result<bool, String> {
    match key {
        "target" => parsed.target = value.split(',').map(str::to_owned).collect(),
        "rounds" => parsed.rounds = number::<usize>(value)?.max(1),
        "config" => parsed.config = Some(value.into()),
        "json" => parsed.json = Some(value.into()),
        "html" => parsed.html = Some(value.into()),
        "hgrm" => parsed.hgrm = Some(value.into()),
        "hlog" => parsed.hlog = Some(value.into()),
        "interval" => o.interval = number(value)?,
        "latencyThreshold" => o.latency_threshold = number(value)?,
        "period" => o.period = number(value)?,
        "serverPid" => o.server_pid = Some(number(value)?),
        "traceRate" => parsed.notes.push("--traceRate has no effect: there are no traces".to_owned()),
        "commandPropertiesFile" => {
            return Err("is for the Java test classes of HBase's tool".to_owned());
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is not a valid number"))
}

fn one_of(text: &str, known: &[&str]) -> Result<String, String> {
    match known.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!("one of {}", known.join(", "))),
    }
}

/// The text of `evenkeel pe --help`.
pub fn usage() -> String {
    let mut text = USAGE.to_owned();
    for (name, description) in Command::all() {
        text.push_str(&format!("  {name:<18} {description}\n"));
    }
    text.push_str(
        "\nrandomRead, randomWrite, sequentialRead, sequentialWrite and scan also accept the prefix async.\n",
    );
    text
}

const USAGE: &str = "\
Generates load on an HBase cluster, with the commands and options of HBase's PerformanceEvaluation, and measures it.

Usage: evenkeel pe [--OPTION=VALUE | --FLAG[=true|false]]... [-DKEY=VALUE]... COMMAND CLIENTS

The cluster
  --target=HOST:PORT,..   masters or region servers (default: from the configuration)
  --config=DIR            the directory of hbase-site.xml (or HBASE_CONF_DIR); -DKEY=VALUE overrides it;
                          without either, ZooKeeper on localhost:2181, as HBase
  --compare A=HOST:PORT B=HOST:PORT   the same run on two clusters, alternating; --rounds=N (5)

How much
  --rows=N                rows of each client (1048576)
  --size=GB               size of the table in GB (above 1), in place of --rows
  --cycles=N              repeat the rows N times (1)
  --sampleRate=PART       run a part of the rows (1.0)
  --startRow=N            the first row of every client (each has its own)
  --duration=SECONDS      measure for this time, regardless of --rows
  --warmup=SECONDS        the same work first, reported separately
  --measureAfter=N        leave each client's first N rows out of the latencies (0)

How
  --rate=N                N requests a second at even times, latency from the time each was due (open loop);
                          without it each client sends when its last request is answered (closed loop)
  --poisson               random times at that rate
  --oneCon, --connCount=N connections (one for each client)
  --threads=N             threads that generate the load (half of the cores)
  --randomSleep=MS        pause up to MS before each random Get

The table (created by write commands; replaced if it does not match)
  --table=NAME (TestTable)  --families=N (1)  --columns=N (1)  --presplit=REGIONS  --splitPolicy=CLASS
  --replicas=N  --compress=NAME  --encryption=NAME  --blockEncoding=NAME  --bloomFilter=TYPE  --blockSize=BYTES
  --inmemory  --inmemoryCompaction=POLICY

Writes
  --valueSize=BYTES (1000)  --valueRandom  --valueZipf  --writeToWAL (true)  --autoFlush (false)  --bufferSize=BYTES
  --multiPut=N (with --autoFlush)  --usetags (256 random bytes each)  --numoftags=N (1)
  --durability=SKIP_WAL|ASYNC_WAL|SYNC_WAL|FSYNC_WAL (SYNC_WAL, which HBase flushes and does not sync)

Reads
  --multiGet=N  --addColumns (true)  --filterAll  --caching=ROWS (30)  --cacheBlocks (true)
  --scanReadType=default|stream|pread  --asyncPrefetch
  --returnPart=PART       scans return this part of their rows, the server filters out the others at random

Reports
  --json=FILE  --html=FILE  --hgrm=FILE (percentiles)  --hlog=FILE (a histogram each interval)
  --interval=SECONDS (1)  --progress  --latency  --latencyThreshold=MS  --period=ROWS
  --serverPid=PID         read this process's CPU, memory and GC (default: the process that
                          listens on the port, on this machine)

Accepted without effect: --nomapred, --flushCommits, --traceRate.

Exit status: 0 done; 1 requests failed; 2 wrong options; 3 no cluster; 4 table missing, or does not match the options.

Commands:
";

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Result<Parsed, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn hbases_options_are_known() {
        let line = "--nomapred --rows=1000 --cycles=2 --valueSize=10 --valueZipf=true --presplit=4 --compress=SNAPPY \
            --blockEncoding=FAST_DIFF --bloomFilter=ROWCOL --blockSize=4096 --inmemory=true --columns=3 --families=2 \
            --autoFlush=true --oneCon=true --connCount=1 --caching=100 --writeToWAL=false --usetags=true --numoftags=2 \
            --replicas=1 --measureAfter=5 --latency --latencyThreshold=3 --period=10 --randomSleep=1 --sampleRate=0.5 \
            --filterAll --addColumns=false --asyncPrefetch --cacheBlocks=false --scanReadType=pread --table=T \
            --traceRate=0.1 --flushCommits=true --bufferSize=1000 --inmemoryCompaction=BASIC --multiPut=7 --multiGet=9 \
            --splitPolicy=P --startRow=3 --encryption=AES -Dhbase.client.pause=10 sequentialWrite 3";
        let parsed = of(line).expect("parses");
        let o = parsed.options.expect("a run");
        assert_eq!((o.rows, o.cycles, o.value_size, o.presplit, o.clients), (1000, 2, 10, 4, 3));
        assert!(o.value_zipf && o.inmemory && o.auto_flush && o.one_con && o.use_tags && o.filter_all);
        assert!(!o.write_to_wal && !o.add_columns && !o.cache_blocks);
        assert_eq!((o.multi_put, o.multi_get, o.start_row, o.measure_after), (7, 9, 3, 5));
        assert_eq!(o.scan_read_type, "PREAD");
        assert_eq!(parsed.define, [("hbase.client.pause".to_owned(), "10".to_owned())]);
        assert_eq!(parsed.notes.len(), 3, "tags, prefetch and traces are spoken of: {:?}", parsed.notes);
    }

    #[test]
    fn defaults_are_hbases() {
        let o = of("scan 1").expect("parses").options.expect("a run");
        assert_eq!(
            (o.table.as_str(), o.value_size, o.caching, o.buffer_size),
            ("TestTable", 1000, 30, 2 << 20)
        );
        assert!(o.write_to_wal && !o.auto_flush && o.add_columns && o.cache_blocks && !o.one_con);
        assert_eq!((o.period, o.block_size, o.bloom_filter.as_str()), (104_857, 65_536, "ROW"));
    }

    #[test]
    fn invalid_command_lines_name_their_error() {
        let why = |line| of(line).expect_err(line);
        assert_eq!(why("--nosuch=1 scan 1"), "--nosuch=1: no such option");
        assert_eq!(why("--nosuch scan 1"), "--nosuch: no such option");
        assert_eq!(why("--rows scan 1"), "--rows: needs a value");
        assert_eq!(why("--rows=x scan 1"), "--rows=x: `x` is not a valid number");
        assert_eq!(why("--oneCon=maybe scan 1"), "--oneCon=maybe: true or false, not maybe");
        assert_eq!(why("--size=1 scan 1"), "--size=1: gigabytes, above 1");
        assert_eq!(
            why("--compress=ZIP scan 1"),
            "--compress=ZIP: one of LZO, GZ, NONE, SNAPPY, LZ4, BZIP2, ZSTD, LZMA, BROTLI"
        );
        assert_eq!(why("wash 1"), "unknown command: wash");
        assert!(why("metaWrite 1").contains("hbase:meta") && why("org.acme.Mine 1").contains("Java"));
        assert_eq!(why("scan"), "scan needs a number of clients");
        assert_eq!(why("scan 0"), "scan needs a number of clients");
        assert_eq!(why("scan 1 2"), "nothing is expected after the clients: 2");
        assert_eq!(why("--multiPut=2 randomWrite 1"), "--multiPut needs --autoFlush=true");
        assert_eq!(why("--valueRandom --valueZipf scan 1"), "--valueZipf or --valueRandom, not both");
        assert_eq!(why("--oneCon --connCount=2 scan 1"), "--oneCon or --connCount, not both");
        assert_eq!(why("--rows=9"), "no command");
        assert!(why("--compare A=x:1 randomRead 1").contains("NAME=host:port"));
    }

    #[test]
    fn targets_reports_and_comparisons() {
        let parsed =
            of("--compare A=h:1 B=g:2 --rounds=3 --json=j --html=h --hgrm=p --hlog=l --rate=100 scan 1");
        let parsed = parsed.expect("parses");
        let pair = |n: &str, a: &str| (n.to_owned(), a.to_owned());
        assert_eq!((parsed.compare, parsed.rounds), (vec![pair("A", "h:1"), pair("B", "g:2")], 3));
        assert_eq!(parsed.options.expect("a run").rate, Some(100.0));
        assert_eq!((parsed.json, parsed.html), (Some("j".into()), Some("h".into())));
        assert_eq!(of("--compare=A=h:1,B=g:2 scan 1").expect("parses").compare.len(), 2);
        assert_eq!(of("--target=a:1,b:2 scan 1").expect("parses").target, ["a:1", "b:2"]);
        assert!(of("--help").expect("parses").options.is_none());
        assert!(usage().contains("scanRange10000"));
    }
}
