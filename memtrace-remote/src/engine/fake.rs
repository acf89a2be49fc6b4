//! Servers written by hand for tests, each of which answers as it is reported, or fails in one way.

use super::action::Action;
use super::engines::Engines;
use super::refusals;
use super::workers::Servers;
use crate::http::{Client, parse_url};
use clap::Parser;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What a server says at a path.
#[derive(Clone)]
pub(super) enum Says {
    Status(u16, String),
    /// It closes the connection.
    Nothing,
    /// It keeps the connection until the other side goes.
    Waits,
}

pub(super) fn status(status: u16, body: &str) -> Says {
    Says::Status(status, body.to_owned())
}

/// A server, and the paths that it was asked.
pub(super) struct Fake {
    pub(super) url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    pub(super) fn start(says: impl Fn(&str) -> Says + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&asked);
        let says = Arc::new(says);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (seen, says) = (Arc::clone(&seen), Arc::clone(&says));
                std::thread::spawn(move || serve(stream.unwrap(), &seen, &*says));
            }
        });
        Self { url, asked }
    }

    /// One that is well, and does at the paths of a profiler what is said.
    pub(super) fn worker(says: Says) -> Self {
        Self::start(move |path| match path {
            "/start_profile" | "/stop_profile" => says.clone(),
            "/health" => status(200, ""),
            _ => status(404, "{}"),
        })
    }

    pub(super) fn client(&self) -> Client {
        Client::new(parse_url(&self.url).unwrap(), None).unwrap()
    }

    pub(super) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, seen: &Mutex<Vec<String>>, says: &dyn Fn(&str) -> Says) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            return;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).unwrap();
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    seen.lock().unwrap().push(format!("{method} {path}"));
    match says(path) {
        Says::Status(status, body) => {
            let length = body.len();
            let text = format!(
                "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
            );
            stream.write_all(text.as_bytes()).unwrap();
        }
        Says::Nothing => {}
        Says::Waits => {
            let _ = stream.read(&mut [0]);
        }
    }
}

/// The options of a command line.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    servers: Servers,
}

pub(super) fn found(options: &[&str]) -> Result<Engines, String> {
    let words = [&["test"], options].concat();
    let options = Options::try_parse_from(words).unwrap();
    let found = crate::runtime()
        .unwrap()
        .block_on(Engines::find(&options.servers, None));
    found.map_err(|error| format!("{error:#}"))
}

/// What a person reads of a server that fails.
pub(super) fn words(action: Action, fake: &Fake) -> String {
    let client = fake.client();
    crate::runtime().unwrap().block_on(async {
        let answer = client.post(&action.path(), action.patience()).await;
        refusals::in_words(action, &client, &answer.unwrap_err()).await
    })
}
