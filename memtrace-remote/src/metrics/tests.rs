//! Figures that are sent: what arrives, and servers that behave badly.

use super::figures::Now;
use super::otlp::Encoder;
use super::send::{Refused, Sender};
use crate::http::{Client, parse_url};
use memtrace_analyze::{Family, METRICS, Metric};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::metrics::v1::{NumberDataPoint, metric::Data, number_data_point};
use prost::Message;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

fn metric(name: &str) -> &'static Metric {
    METRICS
        .iter()
        .find(|metric| metric.name == name)
        .expect("a metric")
}

/// Some figures: a gauge with labels, and a counter.
fn figures(held: f64, kills: f64) -> Vec<Family> {
    let mut roles = Family::single(metric("memtrace_role_memory_bytes"), held);
    roles.samples[0].0 = vec![
        ("role", "a \"role\"".to_owned()),
        ("kind", "rss".to_owned()),
    ];
    vec![
        roles,
        Family::single(metric("memtrace_oom_kills_total"), kills),
    ]
}

fn value(point: &NumberDataPoint) -> f64 {
    match point.value {
        Some(number_data_point::Value::AsDouble(value)) => value,
        _ => panic!("{point:?}"),
    }
}

/// The points of what was sent, by the name of the metric, its unit, and whether it only goes up.
fn points(request: &ExportMetricsServiceRequest) -> Vec<(&str, &str, bool, &NumberDataPoint)> {
    let metrics = &request.resource_metrics[0].scope_metrics[0].metrics;
    let point = |data: &'_ Option<Data>| match data {
        Some(Data::Gauge(_)) => false,
        Some(Data::Sum(sum)) => {
            // 2 is cumulative.
            assert_eq!((sum.is_monotonic, sum.aggregation_temporality), (true, 2));
            true
        }
        other => panic!("{other:?}"),
    };
    let of = metrics.iter().map(|metric| {
        let first = match &metric.data {
            Some(Data::Gauge(gauge)) => &gauge.data_points[0],
            Some(Data::Sum(sum)) => &sum.data_points[0],
            other => panic!("{other:?}"),
        };
        (&*metric.name, &*metric.unit, point(&metric.data), first)
    });
    of.collect()
}

#[test]
fn figures_are_gauges_and_counters_of_a_host_with_their_units() {
    let mut encoder = Encoder::of("gpu-7".to_owned(), 1_000);
    let request = encoder.request(&figures(5.0, 2.0), 2_000);
    let sent = points(&request);
    let [(name, unit, is_counter, held), kills] = sent[..] else {
        panic!("{sent:?}");
    };
    assert_eq!(
        (name, unit, is_counter),
        ("memtrace.role.memory", "By", false)
    );
    assert_eq!((value(held), held.time_unix_nano), (5.0, 2_000));
    assert_eq!(held.attributes[0].key, "role");
    let (name, unit, is_counter, kills) = kills;
    assert_eq!(
        (name, unit, is_counter),
        ("memtrace.oom_kills", "{kill}", true)
    );
    assert_eq!((value(kills), kills.start_time_unix_nano), (2.0, 1_000));
    let resource = request.resource_metrics[0].resource.as_ref().expect("one");
    let of_resource = |key: &str| {
        let found = resource.attributes.iter().find(|one| one.key == key);
        match found.and_then(|one| one.value.as_ref()?.value.as_ref()) {
            Some(Value::StringValue(text)) => text.clone(),
            other => panic!("{key}: {other:?}"),
        }
    };
    assert_eq!(of_resource("service.name"), "memtrace");
    assert_eq!(of_resource("host.name"), "gpu-7");
    // A counter goes on, or begins again when it was seen last.
    for (value, now, began) in [
        (3.0, 3_000, 1_000),
        (1.0, 4_000, 3_000),
        (2.0, 5_000, 3_000),
    ] {
        let request = encoder.request(&figures(5.0, value), now);
        let (_, _, _, kills) = points(&request)[1];
        assert_eq!(kills.start_time_unix_nano, began, "{value}");
    }
}

/// A server that does this with each connection, when it has read what was sent, which is handed on.
fn server(
    serve: impl Fn(&mut TcpStream) + Send + 'static,
) -> (String, Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (seen, sent) = channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte).expect("a head");
                head.push(byte[0]);
            }
            let head = String::from_utf8(head).expect("text");
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let length = length.and_then(|length| length.parse().ok());
            let mut body = vec![0; length.expect("a length")];
            stream.read_exact(&mut body).expect("a body");
            let _ = seen.send((head, body));
            serve(&mut stream);
        }
    });
    (url, sent)
}

fn answer(status: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

fn says(answer: Vec<u8>) -> impl Fn(&mut TcpStream) + Send {
    move |stream| drop(stream.write_all(&answer))
}

fn sender(url: &str) -> Sender {
    let client = Client::new(parse_url(url).expect("a URL"), None).expect("a client");
    Sender::of(client, "host".to_owned(), Duration::from_millis(300))
}

fn send(url: &str) -> Result<(), Refused> {
    let runtime = crate::runtime().expect("a runtime");
    runtime.block_on(sender(url).send(&figures(5.0, 2.0)))
}

#[test]
fn what_is_sent_arrives_as_otlp_does() {
    let (url, sent) = server(says(answer("200 OK", b"")));
    send(&url).expect("it is taken");
    let (head, body) = sent.recv().expect("a request");
    assert!(head.starts_with("POST /v1/metrics HTTP/1.1\r\n"), "{head}");
    assert!(
        head.contains("content-type: application/x-protobuf\r\n"),
        "{head}"
    );
    let request = ExportMetricsServiceRequest::decode(&*body).expect("a request");
    assert_eq!(points(&request).len(), 2);
}

#[test]
fn a_server_that_is_down_slow_or_lies_is_reported_and_costs_little() {
    let partly = ExportMetricsServiceResponse {
        partial_success: Some(ExportMetricsPartialSuccess {
            rejected_data_points: 7,
            error_message: format!("too old{}", "!".repeat(100_000)),
        }),
    };
    let waits = |stream: &mut TcpStream| drop(stream.read(&mut [0]));
    let endless = |stream: &mut TcpStream| {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let _ = stream.write_all(head.as_bytes());
        let piece = format!("10000\r\n{}\r\n", "x".repeat(0x1_0000));
        while stream.write_all(piece.as_bytes()).is_ok() {}
    };
    type Serve = Box<dyn Fn(&mut TcpStream) + Send>;
    let cases: Vec<(Serve, bool, &str)> = vec![
        (Box::new(says(Vec::new())), true, "the connection broke"),
        (Box::new(waits), true, "no answer within 0.3 s"),
        (Box::new(endless), false, "longer than 64.00 KiB"),
        (
            Box::new(says(answer("503 x", b"busy"))),
            true,
            "status 503: busy",
        ),
        (Box::new(says(answer("429 x", b""))), true, "status 429"),
        (
            Box::new(says(answer("400 x", b"no"))),
            false,
            "status 400: no",
        ),
        (Box::new(says(answer("404 x", b""))), false, "status 404"),
        (
            Box::new(says(answer("200 OK", b"<html>"))),
            false,
            "can't be read",
        ),
        (
            Box::new(says(answer("200 OK", &partly.encode_to_vec()[..]))),
            false,
            "longer than",
        ),
    ];
    for (serve, may_pass, words) in cases {
        let (url, _sent) = server(serve);
        let begin = Instant::now();
        let refused = send(&url).expect_err(words);
        assert!(begin.elapsed() < Duration::from_secs(5), "{words}");
        let said = refused.to_string();
        assert!(said.contains(words), "{said}: {words}");
        assert_eq!(refused.may_pass(), may_pass, "{said}");
        assert!(said.len() < 2_000, "{said}");
    }
    let few = ExportMetricsServiceResponse {
        partial_success: Some(ExportMetricsPartialSuccess {
            rejected_data_points: 7,
            error_message: "too old".to_owned(),
        }),
    };
    let (url, _sent) = server(says(answer("200 OK", &few.encode_to_vec())));
    let said = send(&url).expect_err("not all").to_string();
    assert_eq!(said, "it did not take 7 of them: too old");
}

/// A server that asks for a pause first, and takes what comes then.
fn asks(seconds: u32) -> (String, Receiver<(String, Vec<u8>)>) {
    let pause = format!("HTTP/1.1 429 x\r\nretry-after: {seconds}\r\ncontent-length: 0\r\n\r\n");
    let is_first = std::sync::atomic::AtomicBool::new(true);
    server(
        move |stream| match is_first.swap(false, std::sync::atomic::Ordering::Relaxed) {
            true => says(pause.clone().into_bytes())(stream),
            false => says(answer("200 OK", b""))(stream),
        },
    )
}

#[test]
fn in_a_pause_the_figures_are_looked_at_and_the_last_ones_end_it() {
    let runtime = crate::runtime().expect("a runtime");
    let keep_up = |pause: u32, length: Duration| {
        let (url, sent) = asks(pause);
        let (begin, every) = (Instant::now(), Duration::from_millis(10));
        let mut looks = 0;
        let figures = async || {
            looks += 1;
            Ok(Arc::new(Now {
                families: figures(5.0, 2.0),
                is_over: begin.elapsed() >= length,
            }))
        };
        let done = runtime.block_on(sender(&url).keep_up(figures, every));
        done.expect("the figures can be read");
        (begin.elapsed(), looks, sent.try_iter().count())
    };
    let (took, looks, sent) = keep_up(600, Duration::from_millis(300));
    assert!(took < Duration::from_secs(30), "{took:?}");
    assert!(looks > 3, "{looks}");
    assert_eq!(sent, 2);
    // One that the recording outlasts.
    let (_, _, sent) = keep_up(1, Duration::from_millis(1_500));
    assert!(sent > 2, "{sent}");
}

#[test]
fn what_fails_in_a_way_that_may_pass_is_tried_again_a_few_times() {
    let runtime = crate::runtime().expect("a runtime");
    let once = |url: &str| {
        let pause = Duration::from_millis(1);
        let sent = runtime.block_on(sender(url).once(&figures(5.0, 2.0), pause));
        sent.map_err(|error| format!("{error:#}"))
    };
    let (url, sent) = server(says(answer("503 x", b"busy")));
    let refused = once(&url).expect_err("it never takes them");
    assert_eq!(
        refused,
        format!("failed to send figures to {url}: status 503: busy")
    );
    assert_eq!(sent.try_iter().count(), 4);
    let (url, sent) = server(says(answer("400 x", b"no")));
    once(&url).expect_err("it never takes them");
    assert_eq!(sent.try_iter().count(), 1);
    // One that is well the third time.
    let times = std::sync::atomic::AtomicUsize::new(0);
    let (url, sent) = server(move |stream| {
        let time = times.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let status = if time < 2 { "502 x" } else { "200 OK" };
        says(answer(status, b""))(stream);
    });
    once(&url).expect("it takes them");
    assert_eq!(sent.try_iter().count(), 3);
    // One that asks for a pause gets it, and one that asks for an hour is left alone.
    let begin = Instant::now();
    let (url, sent) = asks(1);
    once(&url).expect("it takes them");
    assert!(
        begin.elapsed() >= Duration::from_secs(1),
        "{:?}",
        begin.elapsed()
    );
    assert_eq!(sent.try_iter().count(), 2);
    let (url, sent) = asks(3600);
    once(&url).expect_err("nobody waits so long");
    assert_eq!(sent.try_iter().count(), 1);
    // Nobody listens.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let refused = once(&url).expect_err("nobody is there");
    assert!(refused.contains("failed to connect"), "{refused}");
}
