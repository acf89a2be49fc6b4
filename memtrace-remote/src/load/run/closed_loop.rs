//! One condition: as many workers as requests are to be under way, each of which sends its next one
//! as soon as its last has ended, until none is left to begin.

use crate::http::{Answer, Ask, Client, ask};
use crate::stop::Stop;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::JoinSet;

/// Answers that wait to be written, for each worker.
const WAITING: usize = 16;

/// A server that has just refused is not asked again at once.
const BEFORE_RETRY: Duration = Duration::from_secs(1);

/// One time that a request was sent.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) request: usize,
    /// How often it was sent before.
    pub(super) attempt: u32,
    /// Whether it is not sent again.
    pub(super) is_last: bool,
    pub(super) answer: Answer,
}

/// What is sent under a condition.
pub(super) struct Load {
    pub(super) client: Client,
    pub(super) request_count: usize,
    pub(super) concurrency: usize,
    /// How often a request that failed is sent again.
    pub(super) retries: u32,
    /// Makes the request of a number: there may be more of them than memory.
    pub(super) make: Box<dyn Fn(usize) -> Ask + Send + Sync>,
}

/// Sends, and hands out each attempt when it has ended. Workers end when nobody takes them.
pub(super) fn start(load: Load, stop: &Stop) -> (JoinSet<()>, Receiver<Attempt>) {
    let (ended, attempts) = channel(WAITING * load.concurrency);
    let workers = load.concurrency.min(load.request_count);
    let shared = Arc::new((load, AtomicUsize::new(0)));
    let mut all = JoinSet::new();
    for _ in 0..workers {
        let (shared, ended, mut stop) = (Arc::clone(&shared), ended.clone(), stop.clone());
        all.spawn(async move {
            let (load, next) = &*shared;
            loop {
                let request = next.fetch_add(1, Ordering::Relaxed);
                if request >= load.request_count {
                    return;
                }
                let asked = (load.make)(request);
                for attempt in 0..=load.retries {
                    if stop.is_wished() {
                        return;
                    }
                    let answer = ask(&load.client, &asked, stop.wished()).await;
                    let is_last =
                        answer.failure.is_none() || attempt == load.retries || stop.is_wished();
                    let one = Attempt {
                        request,
                        attempt,
                        is_last,
                        answer,
                    };
                    if ended.send(one).await.is_err() {
                        return;
                    }
                    if is_last {
                        break;
                    }
                    tokio::select! {
                        () = tokio::time::sleep(BEFORE_RETRY) => {}
                        () = stop.wished() => return,
                    }
                }
            }
        });
    }
    (all, attempts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::parse_url;
    use crate::load::server::Server;
    use bytes::Bytes;
    use memtrace_analyze::{RequestFigures, Sending};
    use memtrace_model::{RequestOutcome, RequestRow};
    use std::collections::HashSet;

    /// Sends to the built-in server, which gives each answer so many tokens a second.
    fn sent(rate: f64, request_count: usize, stop_after: Option<usize>) -> Vec<Attempt> {
        crate::runtime().unwrap().block_on(async {
            let server = Server::bind(0, rate).await.unwrap();
            let url = format!("http://{}", server.address().unwrap());
            tokio::spawn(server.run());
            let make = |_| Ask {
                path: "/v1/completions",
                body: Bytes::from(r#"{"prompt":"a b","max_tokens":4,"stream":true}"#),
                timeout: Duration::from_secs(20),
            };
            let load = Load {
                client: Client::new(parse_url(&url).unwrap(), None).unwrap(),
                request_count,
                concurrency: 4,
                retries: 0,
                make: Box::new(make),
            };
            let (wish, stop) = Stop::by_hand();
            let (mut workers, mut attempts) = start(load, &stop);
            let mut all = Vec::new();
            while let Some(attempt) = attempts.recv().await {
                all.push(attempt);
                if Some(all.len()) == stop_after {
                    wish.send_replace(true);
                }
            }
            while let Some(worker) = workers.join_next().await {
                worker.unwrap();
            }
            all
        })
    }

    fn most_at_a_time(attempts: &[Attempt]) -> usize {
        let rows = attempts.iter().map(|attempt| RequestRow {
            start_boot_ns: attempt.answer.start,
            boot_ns: attempt.answer.end,
            ..RequestRow::default()
        });
        let sendings: Vec<Sending> = rows.map(|row| Sending::from(&row)).collect();
        RequestFigures::of(&sendings).concurrency_reached
    }

    #[test]
    fn exactly_so_many_are_under_way_and_each_request_is_sent_once() {
        let attempts = sent(100.0, 11, None);
        assert!(attempts.iter().all(|one| one.answer.failure.is_none()));
        let requests: HashSet<usize> = attempts.iter().map(|one| one.request).collect();
        assert_eq!((attempts.len(), requests.len()), (11, 11));
        assert_eq!(most_at_a_time(&attempts), 4);
    }

    #[test]
    fn a_request_that_failed_is_sent_again_so_often_and_each_time_is_reported() {
        crate::runtime().unwrap().block_on(async {
            let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let url = format!("http://{}", free.local_addr().unwrap());
            drop(free);
            let load = Load {
                client: Client::new(parse_url(&url).unwrap(), None).unwrap(),
                request_count: 1,
                concurrency: 1,
                retries: 1,
                make: Box::new(|_| Ask {
                    path: "/v1/completions",
                    body: Bytes::new(),
                    timeout: Duration::from_secs(20),
                }),
            };
            let (_wish, stop) = Stop::by_hand();
            let (_workers, mut attempts) = start(load, &stop);
            let mut text = Vec::new();
            while let Some(attempt) = attempts.recv().await {
                text.push((attempt.attempt, attempt.is_last, attempt.answer.start));
            }
            let [first, second] = text.as_slice() else {
                panic!("{text:?}");
            };
            assert_eq!((first.0, first.1, second.0, second.1), (0, false, 1, true));
            assert!((second.2 - first.2).0 >= 1_000_000_000, "at once: {text:?}");
        });
    }

    #[test]
    fn when_it_is_to_end_what_is_under_way_is_a_row_and_nothing_more_begins() {
        let attempts = sent(10.0, 1_000, Some(1));
        let interrupted = attempts.iter().filter(|one| {
            let failure = one.answer.failure.as_ref();
            failure.is_some_and(|failure| failure.outcome() == RequestOutcome::Interrupted)
        });
        assert!(interrupted.count() >= 1, "{attempts:#?}");
        assert!(attempts.len() <= 8, "{}", attempts.len());
    }
}
