//! Reads that any replica of a region may answer ([`crate::Consistency::Timeline`]).
//!
//! The first replica is asked; when it has not answered after a while, or failed, so are the others, all at once, and the
//! first answer is the read's. It fails when all have failed, with what the first replica said. Each asks again by itself as
//! reads do. A region that has one replica is read as ever.

use std::future::Future;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::error::{Error, Result};

/// The first answer of `first` and, once it has kept us waiting for `wait`, of `others`. What answers too late is given to
/// `late`, so that whatever it holds is let go; futures run to their end, which their own time limits bound.
pub(crate) async fn first_of<T, F>(
    first: F,
    wait: Duration,
    others: Vec<F>,
    late: impl Fn(T) + Clone + Send + 'static,
) -> Result<T>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let (sender, mut answers) = mpsc::channel(1 + others.len());
    let ask = |of_first: bool, future: F| {
        let (sender, late) = (sender.clone(), late.clone());
        tokio::spawn(async move {
            if let Err(mpsc::error::SendError((_, Ok(answer)))) = sender.send((of_first, future.await)).await
            {
                late(answer);
            }
        });
    };
    ask(true, first);
    let mut waiting = 1;
    let mut failure = None;
    match timeout(wait, answers.recv()).await {
        Ok(Some((_, Ok(answer)))) => return Ok(answer),
        Ok(Some((_, Err(error)))) => (failure, waiting) = (Some(error), 0),
        Ok(None) | Err(_) => {}
    }
    waiting += others.len();
    others.into_iter().for_each(|other| ask(false, other));
    while waiting > 0 {
        match answers.recv().await {
            Some((_, Ok(answer))) => return Ok(give(answer, &mut answers, &late)),
            Some((of_first, Err(error))) if of_first || failure.is_none() => failure = Some(error),
            Some(_) => {}
            None => break,
        }
        waiting -= 1;
    }
    Err(failure.unwrap_or_else(|| Error::Protocol("no replica was asked".to_owned())))
}

/// Lets go of answers that came in the same moment.
fn give<T>(answer: T, answers: &mut mpsc::Receiver<(bool, Result<T>)>, late: &impl Fn(T)) -> T {
    answers.close();
    while let Ok((_, other)) = answers.try_recv() {
        other.into_iter().for_each(late);
    }
    answer
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Instant;

    use tokio::time::sleep;

    use super::*;

    type Answer = std::pin::Pin<Box<dyn Future<Output = Result<u32>> + Send>>;

    fn after(ms: u64, answer: Result<u32>) -> Answer {
        Box::pin(async move {
            sleep(Duration::from_millis(ms)).await;
            answer
        })
    }

    fn lost(text: &str) -> Result<u32> {
        Err(Error::NoServer(text.to_owned()))
    }

    const WAIT: Duration = Duration::from_millis(50);

    #[tokio::test]
    async fn a_quick_first_replica_is_enough() {
        let others = vec![after(0, Ok(2))];
        assert_eq!(first_of(after(1, Ok(1)), WAIT, others, drop).await.expect("answers"), 1);
    }

    #[tokio::test]
    async fn others_are_asked_when_it_is_slow_and_late_answers_let_go() {
        let late = Arc::new(AtomicU32::new(0));
        let count = late.clone();
        let (start, others) = (Instant::now(), vec![after(5, Ok(2)), after(900, Ok(4))]);
        let note = move |n| {
            count.fetch_add(n, Ordering::Relaxed);
        };
        assert_eq!(first_of(after(700, Ok(1)), WAIT, others, note).await.expect("answers"), 2);
        assert!(start.elapsed() >= WAIT && start.elapsed() < Duration::from_millis(600));
        while late.load(Ordering::Relaxed) < 5 {
            assert!(start.elapsed() < Duration::from_secs(20), "late answers are let go");
            sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn failures_lead_to_the_others_and_the_first_ones_counts() {
        let others = vec![after(0, lost("b")), after(5, Ok(3))];
        assert_eq!(first_of(after(0, lost("a")), WAIT, others, drop).await.expect("answers"), 3);
        let failed = first_of(after(5, lost("a")), WAIT, vec![after(0, lost("b"))], drop).await;
        assert!(matches!(failed, Err(Error::NoServer(text)) if text == "a"));
        let failed = first_of(after(100, lost("a")), WAIT, vec![after(0, lost("b"))], drop).await;
        assert!(matches!(failed, Err(Error::NoServer(text)) if text == "a"));
    }
}
