//! Servers that behave badly, each written by hand: what a person reads of a request then.

use super::*;
use bytes::Bytes;
use memtrace_model::RequestOutcome;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// The head of a stream.
const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
    transfer-encoding: chunked\r\n\r\n";

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

fn token(text: &str) -> String {
    chunk(&format!(
        "data: {{\"choices\":[{{\"text\":\"{text}\"}}]}}\n\n"
    ))
}

/// A server for one connection, and what becomes of a request to it.
fn answered(serve: impl FnOnce(&mut TcpStream) + Send + 'static) -> Answer {
    asked(Duration::from_secs(20), std::future::pending(), serve)
}

fn asked(
    timeout: Duration,
    stop: impl Future<Output = ()>,
    serve: impl FnOnce(&mut TcpStream) + Send + 'static,
) -> Answer {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        read_request(&mut stream);
        serve(&mut stream);
    });
    let client = Client::new(parse_url(&url).unwrap(), None).unwrap();
    let one = Ask {
        path: "/v1/completions",
        body: Bytes::from("{}"),
        timeout,
    };
    let runtime = crate::runtime().unwrap();
    let begin = Instant::now();
    let answer = runtime.block_on(ask(&client, &one, stop));
    assert!(begin.elapsed() < Duration::from_secs(15), "it hung");
    // Closes the connection, for which some of these servers wait.
    drop(runtime);
    serving.join().unwrap();
    assert!(answer.start <= answer.end);
    answer
}

fn read_request(stream: &mut TcpStream) {
    let mut seen = Vec::new();
    let mut bytes = [0; 4096];
    while !seen.ends_with(b"{}") {
        let length = stream.read(&mut bytes).unwrap();
        assert!(length > 0, "no request");
        seen.extend_from_slice(&bytes[..length]);
    }
}

fn says(text: String) -> impl FnOnce(&mut TcpStream) {
    move |stream| stream.write_all(text.as_bytes()).unwrap()
}

fn outcome(answer: &Answer) -> (RequestOutcome, String) {
    let failure = answer.failure.as_ref().expect("a failure");
    (failure.outcome(), failure.to_string())
}

#[test]
fn a_stream_that_is_whole_has_its_tokens_and_times() {
    let usage =
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\n";
    let text = [
        HEAD.to_owned(),
        chunk("data: {\"choices\":[{\"text\":\"\"}]}\n\n"),
        token("a"),
        token("b"),
        chunk(usage),
        chunk("data: [DONE]\n\n"),
        "0\r\n\r\n".to_owned(),
    ];
    let answer = answered(says(text.concat()));
    assert_eq!(answer.failure, None);
    assert_eq!(
        (answer.prompt_tokens, answer.output_tokens),
        (Some(7), Some(2))
    );
    let first = answer.first_token.unwrap();
    assert!(answer.start < first && first <= answer.end);
}

#[test]
fn an_answer_in_one_piece_has_tokens_and_no_first_one() {
    let body = r#"{"choices":[{"message":{"content":"a"},"finish_reason":"length"}],"usage":{"prompt_tokens":7,"completion_tokens":2}}"#;
    let length = body.len();
    let answer = answered(says(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )));
    assert_eq!((answer.failure, answer.first_token), (None, None));
    assert_eq!(
        (answer.prompt_tokens, answer.output_tokens),
        (Some(7), Some(2))
    );
}

#[test]
fn a_server_that_is_not_there_takes_no_connection() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let client = Client::new(parse_url(&url).unwrap(), None).unwrap();
    let one = Ask {
        path: "/v1/completions",
        body: Bytes::new(),
        timeout: Duration::from_secs(5),
    };
    let runtime = crate::runtime().unwrap();
    let answer = runtime.block_on(ask(&client, &one, std::future::pending()));
    let (outcome, words) = outcome(&answer);
    assert_eq!(outcome, RequestOutcome::NotConnected);
    assert!(words.contains("Connection refused"), "{words}");
    assert_eq!(answer.status, None);
}

#[test]
fn a_server_that_never_answers_is_waited_for_so_long_and_no_longer() {
    let patience = Duration::from_millis(300);
    let wait = |stream: &mut TcpStream| {
        // Until the sender gives up and goes.
        let _ = stream.read(&mut [0]);
    };
    let answer = asked(patience, std::future::pending(), wait);
    assert_eq!(
        outcome(&answer),
        (
            RequestOutcome::TimedOut,
            "no answer within 0.3 s".to_owned()
        )
    );
    let answer = asked(patience, std::future::pending(), move |stream| {
        says(HEAD.to_owned() + &token("a"))(stream);
        wait(stream);
    });
    assert_eq!(
        outcome(&answer),
        (
            RequestOutcome::TimedOut,
            "the answer did not end within 0.3 s".to_owned()
        )
    );
    assert_eq!(answer.output_tokens, Some(1), "what came is reported");
}

#[test]
fn a_connection_that_breaks_says_when() {
    let answer = answered(|_| ());
    assert_eq!(outcome(&answer).0, RequestOutcome::Broken);
    assert!(
        outcome(&answer).1.contains("before an answer"),
        "{:?}",
        outcome(&answer)
    );
    let answer = answered(says(HEAD.to_owned() + &token("a") + "40\r\ndata: {\"cho"));
    assert_eq!(outcome(&answer).0, RequestOutcome::Broken);
    assert!(outcome(&answer).1.contains("in the midst of the answer"));
    assert_eq!((answer.status, answer.output_tokens), (Some(200), Some(1)));
    let answer = answered(|stream| {
        says(HEAD.to_owned() + &token("a"))(stream);
        reset(stream);
    });
    assert_eq!(outcome(&answer).0, RequestOutcome::Broken);
}

/// Closes a connection as a program does that dies with unread bytes.
fn reset(stream: &TcpStream) {
    use std::os::fd::AsRawFd;
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: an open socket, and a value of the stated size.
    let set = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of_val(&linger) as _,
        )
    };
    assert_eq!(set, 0);
}

#[test]
fn a_stream_that_ends_too_early_is_cut_off() {
    let end = "0\r\n\r\n";
    let answer = answered(says(HEAD.to_owned() + &chunk("data: {\"choices\":") + end));
    let half = (
        RequestOutcome::Cut,
        "the stream ended in the midst of a line".to_owned(),
    );
    assert_eq!(outcome(&answer), half);
    let answer = answered(says(HEAD.to_owned() + &token("a") + end));
    assert_eq!(outcome(&answer).0, RequestOutcome::Cut);
    assert!(
        outcome(&answer)
            .1
            .contains("before the answer was finished")
    );
    let answer = answered(says(HEAD.to_owned() + end));
    assert_eq!(outcome(&answer).0, RequestOutcome::Cut);
}

#[test]
fn a_refusal_has_the_words_of_the_server() {
    let refused = |status: &str, body: &str| {
        let length = body.len();
        let text = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n{body}");
        let answer = answered(says(text));
        let (outcome, words) = outcome(&answer);
        assert_eq!(outcome, RequestOutcome::Refused);
        (answer.status.unwrap(), words)
    };
    let shown = refused(
        "400 Bad Request",
        r#"{"error":{"message":"too long","code":400}}"#,
    );
    assert_eq!(shown, (400, "status 400: too long".to_owned()));
    let shown = refused(
        "400 Bad Request",
        r#"{"object":"error","message":"too long"}"#,
    );
    assert_eq!(shown.1, "status 400: too long");
    let shown = refused("502 Bad Gateway", "<html>\n<head>nginx</head></html>");
    assert_eq!(shown.1, "status 502: a page of HTML");
    assert_eq!(refused("503 x", "").1, "status 503: without a word");
    let long = refused("500 x", &"x".repeat(100_000));
    assert!(long.1.len() < 400);
}

#[test]
fn what_is_no_answer_is_said_to_be_none() {
    let of_type = |content_type: &str, body: &str| {
        let length = body.len();
        let answer = answered(says(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {length}\r\n\r\n{body}"
        )));
        let (outcome, words) = outcome(&answer);
        assert_eq!(outcome, RequestOutcome::Malformed);
        words
    };
    assert!(of_type("text/html", "<html>").contains("the answer is text/html"));
    assert!(of_type("application/json", "[").contains("can't be read"));
    assert!(of_type("application/json", "{}").contains("neither choices nor usage"));
    assert!(of_type("text/event-stream", "data: {nonsense}\n\n").contains("nonsense"));
    let answer = answered(says("SSH-2.0-OpenSSH_9.2\r\n".to_owned()));
    assert_eq!(outcome(&answer).0, RequestOutcome::Broken);
}

#[test]
fn an_error_within_a_stream_is_the_servers_own() {
    let error = chunk("data: {\"error\":{\"message\":\"EngineCore died\"}}\n\n");
    let answer = answered(says(HEAD.to_owned() + &token("a") + &error + "0\r\n\r\n"));
    let (outcome, words) = outcome(&answer);
    assert_eq!(outcome, RequestOutcome::Refused);
    assert!(words.ends_with("EngineCore died"), "{words}");
}

#[test]
fn an_answer_that_the_engine_gave_up_is_no_answer() {
    let end = chunk("data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"abort\"}]}\n\n");
    let answer = answered(says(HEAD.to_owned() + &token("abort") + &end + "0\r\n\r\n"));
    assert_eq!(outcome(&answer).0, RequestOutcome::Refused);
    assert_eq!(answer.output_tokens, Some(1));
}

#[test]
fn ctrl_c_ends_a_request_that_goes_on() {
    let answer = asked(Duration::from_secs(20), late_stop(), |stream| {
        let _ = stream.read(&mut [0]);
    });
    assert_eq!(outcome(&answer).0, RequestOutcome::Interrupted);
}

async fn late_stop() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}
