//! A router with two servers, each written by hand to fail in one way: what a person reads then.

use super::requests;
use crate::engine::action::{self, Action};
use crate::engine::engines::{Engine, Engines};
use crate::engine::fake::{Fake, Says, found, status, words};
use crate::engine::refusals;
use crate::http::{Client, Failure, parse_url};
use crate::stop::Stop;
use std::net::TcpListener;
use std::time::{Duration, Instant};

fn asked(engines: &Engines, action: Action) -> Vec<String> {
    let done = crate::runtime()
        .unwrap()
        .block_on(async { engines.ask(action, &mut Stop::never()).await });
    done.iter().map(|engine| engine.worker.shown()).collect()
}

const STOP: Action = Action::StopProfile(Duration::from_secs(20));

fn router_of(workers: &[&Fake]) -> Fake {
    let entries: Vec<String> = workers
        .iter()
        .enumerate()
        .map(|(at, worker)| {
            let is_healthy = at == 0;
            format!(r#"{{"url":"{}","is_healthy":{is_healthy}}}"#, worker.url)
        })
        .collect();
    let listed = format!(
        r#"{{"workers":[{}],"total":{}}}"#,
        entries.join(","),
        entries.len()
    );
    Fake::start(move |path| match path {
        "/workers" => status(200, &listed),
        "/start_profile" => status(404, ""),
        _ => status(503, r#"{"error":"no available workers"}"#),
    })
}

#[test]
fn both_servers_of_a_router_are_asked_themselves_and_each_answers_for_itself() {
    let well = Fake::worker(status(200, ""));
    let without = Fake::worker(status(404, r#"{"detail":"Not Found"}"#));
    let router = router_of(&[&well, &without]);
    let engines = found(&["--router", &router.url]).unwrap();
    let health: Vec<_> = engines
        .all
        .iter()
        .map(|one| one.worker.is_healthy)
        .collect();
    assert_eq!(health, [Some(true), Some(false)]);
    let warnings = engines.warnings();
    assert_eq!(
        warnings,
        [format!(
            "{}: its router considers it unhealthy",
            without.url
        )]
    );
    assert_eq!(asked(&engines, Action::StartProfile), [well.url.as_str()]);
    assert_eq!(well.asked(), ["POST /start_profile"]);
    assert!(without.asked().contains(&"POST /start_profile".to_owned()));
    assert_eq!(router.asked(), ["GET /workers"], "it has no profiler");
    assert_eq!(asked(&engines, STOP), [well.url.as_str()]);
}

#[test]
fn a_warning_about_many_servers_is_one_line() {
    let servers: Vec<String> = (1..=8)
        .map(|port| format!("http://127.0.0.1:{port}"))
        .collect();
    let urls: Vec<&str> = servers.iter().flat_map(|url| ["--url", url]).collect();
    let mut engines = found(&urls).unwrap();
    for engine in &mut engines.all {
        engine.worker.is_healthy = Some(false);
    }
    assert_eq!(
        engines.warnings(),
        [format!(
            "{} and 4 more: its router considers it unhealthy",
            servers[..4].join(", ")
        )]
    );
}

#[test]
fn a_port_of_an_earlier_job_is_said_to_be_one() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let text = found(&["--router", &url]).err().unwrap();
    assert!(text.contains("the port changes with each job"), "{text}");
    assert!(text.contains("--from-log"), "{text}");
}

#[test]
fn a_stop_that_is_refused_leaves_a_server_that_may_still_be_profiled() {
    let well = Fake::worker(status(200, ""));
    let refuses = Fake::worker(status(500, "busy"));
    let engines = found(&["--url", &well.url, "--url", &refuses.url]).unwrap();
    let runtime = crate::runtime().unwrap();
    let stopped = runtime.block_on(engines.ask(STOP, &mut Stop::never()));
    let left_on = engines.without(&stopped);
    let left_on: Vec<String> = left_on.iter().map(|one| one.worker.shown()).collect();
    assert_eq!(left_on, [refuses.url.as_str()]);
    assert!(engines.without(&engines.all).is_empty());
}

#[test]
fn all_are_asked_at_once() {
    let slow = || {
        Fake::start(|_| {
            std::thread::sleep(Duration::from_millis(700));
            status(200, "")
        })
    };
    let (first, second) = (slow(), slow());
    let engines = found(&["--url", &first.url, "--url", &second.url]).unwrap();
    let begin = Instant::now();
    assert_eq!(asked(&engines, STOP).len(), 2);
    assert!(begin.elapsed() < Duration::from_millis(1_300));
}

#[test]
fn a_server_without_a_profiler_is_reported_with_the_option_that_makes_one() {
    let text = words(Action::StartProfile, &Fake::worker(status(404, "")));
    assert!(text.contains("started without a profiler"), "{text}");
    assert!(text.contains(action::OPTION), "{text}");
    assert!(text.contains("--vllm-profiler-config"), "{text}");
}

#[test]
fn a_503_of_a_router_is_distinguished_from_one_of_a_server() {
    let of_server = words(Action::StartProfile, &Fake::worker(status(503, "")));
    assert!(
        of_server.contains("the server itself answers 503"),
        "{of_server}"
    );
    let taken_for_a_server = router_of(&[&Fake::worker(status(200, ""))]);
    for action in [Action::StartProfile, STOP] {
        let text = words(action, &taken_for_a_server);
        assert!(text.contains("it is a router"), "{text}");
        assert!(text.contains("--router"), "{text}");
    }
    let down = Fake::start(|_| status(503, r#"{"error":"no available workers"}"#));
    let text = found(&["--router", &down.url]).err().unwrap();
    assert!(
        text.contains("answers 503 itself (no available workers)"),
        "{text}"
    );
    assert!(text.contains("--url"), "{text}");
}

#[test]
fn a_router_that_tells_of_no_workers_says_why() {
    let text = |body: Says| {
        let router = Fake::start(move |_| body.clone());
        found(&["--router", &router.url]).err().unwrap()
    };
    assert!(text(status(200, r#"{"workers":[]}"#)).contains("has no worker"));
    assert!(text(status(404, "")).contains("it is not a router"));
    assert!(text(status(200, "[]")).contains("can't be read"));
    assert!(text(status(200, r#"{"workers":[{"url":"gpu-7"}]}"#)).contains("gpu-7"));
    assert!(text(Says::Nothing).contains("broke before an answer"));
}

#[test]
fn a_server_that_gives_a_stop_up_is_reported_with_its_variable() {
    for says in [
        Says::Nothing,
        status(500, r#"{"error":"RPC call to profile timed out."}"#),
        status(500, "TimeoutError"),
        status(504, ""),
    ] {
        let text = words(STOP, &Fake::worker(says));
        assert!(text.contains("gave up before its workers"), "{text}");
        assert!(text.contains("VLLM_RPC_TIMEOUT=1800000"), "{text}");
        assert!(text.contains("Ray"), "{text}");
    }
    let other = words(STOP, &Fake::worker(status(500, "EngineDeadError")));
    assert_eq!(other, "status 500: EngineDeadError");
    let start = words(Action::StartProfile, &Fake::worker(Says::Nothing));
    assert!(!start.contains("VLLM_RPC_TIMEOUT"), "{start}");
}

#[test]
fn a_stop_that_takes_longer_than_its_timeout_names_the_option() {
    let text = words(
        Action::StopProfile(Duration::from_millis(200)),
        &Fake::worker(Says::Waits),
    );
    assert!(text.starts_with("no answer within 0.2 s"), "{text}");
    assert!(text.contains("--timeout"), "{text}");
}

#[test]
fn ctrl_c_ends_the_wait_and_keeps_who_answered() {
    let well = Fake::worker(status(200, ""));
    let slow = Fake::worker(Says::Waits);
    let engines = found(&["--url", &slow.url, "--url", &well.url]).unwrap();
    let (wish, mut stop) = Stop::by_hand();
    let done: Vec<Engine> = crate::runtime().unwrap().block_on(async {
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(500)).await;
            wish.send_replace(true);
            // The wish holds for as long as this does.
            std::future::pending::<()>().await;
        });
        engines.ask(STOP, &mut stop).await
    });
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].worker.shown(), well.url);
}

#[test]
fn requests_go_to_each_server_in_turn_and_those_that_fail_are_counted() {
    let model = r#"{"data":[{"id":"m"}]}"#;
    let answer = r#"{"choices":[{"text":"a","finish_reason":"length"}]}"#;
    let well = Fake::start(move |path| match path {
        "/v1/models" => status(200, model),
        _ => status(200, answer),
    });
    let bad = Fake::start(move |path| match path {
        "/v1/models" => status(200, model),
        _ => status(500, "EngineDeadError"),
    });
    let engines = found(&["--url", &well.url, "--url", &bad.url]).unwrap();
    let sent = crate::runtime().unwrap().block_on(requests::send(
        &engines.all,
        5,
        (None, Duration::from_secs(20)),
        &Stop::never(),
    ));
    assert_eq!(
        sent.in_words(),
        "3 requests were answered within the window, 2 failed"
    );
    assert!(sent.is_well());
    let completions = |fake: &Fake| {
        let asked = fake.asked();
        asked
            .iter()
            .filter(|path| path.ends_with("/v1/completions"))
            .count()
    };
    assert_eq!((completions(&well), completions(&bad)), (3, 2));
}

#[test]
fn a_server_that_is_not_there_is_said_to_be_so() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let client = Client::new(parse_url(&url).unwrap(), None).unwrap();
    let text = crate::runtime().unwrap().block_on(async {
        let answer: Result<(), Failure> = client.post(&STOP.path(), STOP.patience()).await;
        refusals::in_words(STOP, &client, &answer.unwrap_err()).await
    });
    assert!(text.starts_with("failed to connect"), "{text}");
}
