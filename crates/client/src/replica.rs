//! Timeline-consistent reads, which any replica of a region may answer
//! ([`crate::Consistency::Timeline`]).
//!
//! The read goes to the primary replica. If that one has failed or not answered within a delay, the
//! read goes to all others at once, and the first reply wins. If all fail, the read fails with the
//! primary's error. Each replica's read has its own retries. A region with one replica is read as
//! with strong consistency.
//!
//! [`LateReadPolicy`] decides what happens to the slower reads, and to all reads if the caller's
//! future is dropped.

use std::future::Future;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::error::{Error, Result};

/// What happens to reads whose reply is no longer needed.
#[derive(Clone)]
pub(crate) enum LateReadPolicy<L> {
    /// They are aborted: a Get leaves nothing on the server.
    Cancel,
    /// They run to their end, bounded by their own timeouts, and this closes what they opened.
    Finish(L),
}

/// For reads that leave nothing to clean up.
pub(crate) type NoCleanup<T> = fn(T);

/// Reads in flight that are aborted on drop.
#[derive(Default)]
struct PendingReads(Vec<AbortHandle>);

impl Drop for PendingReads {
    fn drop(&mut self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

/// The first reply of `first` or, after `wait` or its failure, of `others`.
pub(crate) async fn first_of<T, F, L>(
    first: F,
    wait: Duration,
    others: Vec<F>,
    late_reads: LateReadPolicy<L>,
) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
    L: Fn(T) + Clone + Send + 'static,
{
    let (sender, mut replies) = mpsc::channel(1 + others.len());
    let mut pending = PendingReads::default();
    let mut ask = |of_first: bool, future: F| {
        let (sender, unused) = (sender.clone(), late_reads.clone());
        let task = tokio::spawn(async move {
            let reply = (of_first, future.await);
            if let Err(mpsc::error::SendError((_, Ok(reply)))) = sender.send(reply).await {
                clean_up(reply, &unused);
            }
        });
        if matches!(late_reads, LateReadPolicy::Cancel) {
            pending.0.push(task.abort_handle());
        }
    };
    ask(true, first);
    let mut failure = None;
    match timeout(wait, replies.recv()).await {
        Ok(Some((_, Ok(reply)))) => return Ok(reply),
        Ok(Some((_, Err(error)))) => failure = Some(error),
        Ok(None) | Err(_) => {}
    }
    others.into_iter().for_each(|other| ask(false, other));
    // Only the tasks hold senders now, so the channel closes when the last of them ends.
    drop(sender);
    while let Some((of_first, reply)) = replies.recv().await {
        match reply {
            Ok(reply) => return Ok(take_reply(reply, &mut replies, &late_reads)),
            Err(error) if of_first || failure.is_none() => failure = Some(error),
            Err(_) => {}
        }
    }
    Err(failure.unwrap_or_else(|| Error::Protocol("no replica answered".to_owned())))
}

fn clean_up<T>(reply: T, late_reads: &LateReadPolicy<impl Fn(T)>) {
    if let LateReadPolicy::Finish(late) = late_reads {
        late(reply);
    }
}

/// Cleans up replies that arrived at the same time.
fn take_reply<T>(
    reply: T,
    replies: &mut mpsc::Receiver<(bool, Result<T>)>,
    late_reads: &LateReadPolicy<impl Fn(T)>,
) -> T {
    replies.close();
    while let Ok((_, other)) = replies.try_recv() {
        other.into_iter().for_each(|other| clean_up(other, late_reads));
    }
    reply
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Instant;

    use tokio::time::sleep;

    use super::*;

    type ReadFuture = std::pin::Pin<Box<dyn Future<Output = Result<u32>> + Send>>;

    fn after(ms: u64, reply: Result<u32>) -> ReadFuture {
        Box::pin(async move {
            sleep(Duration::from_millis(ms)).await;
            reply
        })
    }

    fn lost(text: &str) -> Result<u32> {
        Err(Error::NoServer(text.to_owned()))
    }

    const WAIT: Duration = Duration::from_millis(50);
    const ABORT: LateReadPolicy<NoCleanup<u32>> = LateReadPolicy::Cancel;

    /// A read that never ends, and counts itself while it is there.
    fn never(count: &Arc<AtomicU32>) -> ReadFuture {
        struct There(Arc<AtomicU32>);
        impl Drop for There {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        count.fetch_add(1, Ordering::Relaxed);
        let there = There(count.clone());
        Box::pin(async move {
            let _there = there;
            std::future::pending().await
        })
    }

    async fn assert_gone(count: &AtomicU32) {
        let start = Instant::now();
        while count.load(Ordering::Relaxed) > 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "reads go on that nobody waits for");
            sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn unfinished_replica_reads_are_cancelled() {
        let count = Arc::default();
        let others = vec![after(5, Ok(2)), never(&count)];
        assert_eq!(first_of(never(&count), WAIT, others, ABORT).await.expect("answers"), 2);
        assert_gone(&count).await;

        let read = first_of(never(&count), Duration::ZERO, vec![never(&count)], ABORT);
        assert!(timeout(WAIT, read).await.is_err() && count.load(Ordering::Relaxed) <= 2);
        assert_gone(&count).await;
    }

    #[tokio::test]
    async fn panicking_replica_reads_end_the_wait() {
        let panics = || -> ReadFuture { Box::pin(async { panic!("a read panics, as the test wants") }) };
        let read = first_of(panics(), WAIT, vec![after(5, lost("b")), panics()], ABORT);
        let failed = timeout(Duration::from_secs(20), read).await.expect("it ends");
        assert!(matches!(failed, Err(Error::NoServer(text)) if text == "b"));
        let read = first_of(panics(), WAIT, vec![panics()], LateReadPolicy::Finish(drop));
        assert!(timeout(Duration::from_secs(20), read).await.expect("it ends").is_err());
    }

    #[tokio::test]
    async fn a_fast_primary_needs_no_other_replica() {
        let others = vec![after(0, Ok(2))];
        assert_eq!(first_of(after(1, Ok(1)), WAIT, others, ABORT).await.expect("answers"), 1);
    }

    #[tokio::test]
    async fn a_slow_primary_is_hedged_to_other_replicas() {
        let late = Arc::new(AtomicU32::new(0));
        let count = late.clone();
        let (start, others) = (Instant::now(), vec![after(5, Ok(2)), after(900, Ok(4))]);
        let note = move |n| {
            count.fetch_add(n, Ordering::Relaxed);
        };
        assert_eq!(
            first_of(after(700, Ok(1)), WAIT, others, LateReadPolicy::Finish(note)).await.expect("answers"),
            2
        );
        assert!(start.elapsed() >= WAIT && start.elapsed() < Duration::from_millis(600));
        while late.load(Ordering::Relaxed) < 5 {
            assert!(start.elapsed() < Duration::from_secs(20), "late replies are let go");
            sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn a_failed_primary_falls_back_to_replicas() {
        let others = vec![after(0, lost("b")), after(5, Ok(3))];
        assert_eq!(first_of(after(0, lost("a")), WAIT, others, ABORT).await.expect("answers"), 3);
        let failed = first_of(after(5, lost("a")), WAIT, vec![after(0, lost("b"))], ABORT).await;
        assert!(matches!(failed, Err(Error::NoServer(text)) if text == "a"));
        let failed = first_of(after(100, lost("a")), WAIT, vec![after(0, lost("b"))], ABORT).await;
        assert!(matches!(failed, Err(Error::NoServer(text)) if text == "a"));
    }
}
