//! Addresses of routers and servers in the log of a job. A job that starts again tells new ones, so
//! the last ones count.

use crate::http::{Target, parse_url};
use crate::limits::{LOG_BYTES, SERVERS};
use anyhow::{Context, bail};
use indicatif::BinaryBytes;
use regex::Regex;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// What a log tells.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Address {
    Router(Target),
    Servers(Vec<Target>),
}

/// Longer lines tell no address.
const LINE_MAX: u64 = 64 << 10;

/// Reads it.
///
/// # Errors
/// When it can't be read, or has no address.
pub(super) fn read(path: &Path) -> anyhow::Result<Address> {
    let doing = || format!("failed to read {}", path.display());
    let file = File::open(path).with_context(doing)?;
    let found = Found::of(BufReader::new(file), LOG_BYTES).with_context(doing)?;
    match found.address() {
        Some(address) => Ok(address),
        None => bail!(
            "{} has no line like 'Router launched at HOST:PORT', 'Ports for engine N: {{…}}', \
             'Starting vLLM server on URL' or 'Uvicorn running on URL'",
            path.display()
        ),
    }
}

/// What has been seen, each kind of line for itself.
#[derive(Default)]
struct Found {
    router: Option<Target>,
    /// By the number of the engine.
    engines: BTreeMap<u64, Target>,
    servers: Vec<Target>,
    /// Of web servers, which may be something else: they count where nothing says more.
    web_servers: Vec<Target>,
}

impl Found {
    fn of(log: impl BufRead, most_bytes: u64) -> anyhow::Result<Self> {
        let mut log = log.take(most_bytes);
        let router = Regex::new(r"(?i)\brouter launched at\s+([^\s,]+)")?;
        let engine = Regex::new(r"(?i)\bports for engine\s+(\d+):\s*(\{.*\})")?;
        let server =
            Regex::new(r"(?i)\bstarting vllm (?:api )?server(?:\s+\d+)? on\s+(https?://[^\s,]+)")?;
        let web_server = Regex::new(r"(?i)\buvicorn running on\s+(https?://[^\s,]+)")?;
        let mut found = Self::default();
        let mut line = Vec::new();
        while next_line(&mut log, &mut line)? {
            let text = String::from_utf8_lossy(&line);
            let text = bare(&text);
            if let Some(reported) = router
                .captures(&text)
                .and_then(|reported| address(&reported[1]))
            {
                // A new router has new workers.
                found = Self {
                    router: Some(reported),
                    ..Self::default()
                };
            } else if let Some(reported) = engine.captures(&text) {
                let number = reported[1].parse().ok();
                let engine = number.zip(ports(&reported[2]));
                found.engines.extend(engine);
            } else {
                for (rule, known) in [
                    (&server, &mut found.servers),
                    (&web_server, &mut found.web_servers),
                ] {
                    let reported = rule.captures(&text);
                    let reported = reported.and_then(|reported| address(&reported[1]));
                    known.extend(reported.filter(|reported| !known.contains(reported)));
                }
            }
            let most = found.servers.len().max(found.web_servers.len());
            if found.engines.len() + most > SERVERS {
                bail!("it has more than {SERVERS} servers: name those to ask with --url");
            }
        }
        if log.limit() == 0 {
            let most = BinaryBytes(most_bytes);
            bail!(
                "it is longer than {most}: give the end of it, as in --from-log <(tail -c 1G LOG)"
            );
        }
        Ok(found)
    }

    fn address(self) -> Option<Address> {
        let engines: Vec<Target> = self.engines.into_values().collect();
        if let Some(router) = self.router {
            return Some(Address::Router(router));
        }
        let mut servers = [engines, self.servers, self.web_servers].into_iter();
        servers
            .find(|servers| !servers.is_empty())
            .map(Address::Servers)
    }
}

/// The next line, of a long one the begin; false at the end.
fn next_line(log: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let begin = log.take(LINE_MAX).read_until(b'\n', line)?;
    if begin as u64 == LINE_MAX && line.last() != Some(&b'\n') {
        log.skip_until(b'\n')?;
    }
    Ok(begin > 0)
}

/// Without the colours that Ray gives to the begin of a line.
fn bare(line: &str) -> String {
    let mut bare = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("\x1b[") {
        bare.push_str(before);
        let end = after.find(|letter: char| letter.is_ascii_alphabetic());
        rest = end.map_or("", |end| &after[end + 1..]);
    }
    bare.push_str(rest);
    bare
}

/// A host and port, or a URL. One that listens everywhere is asked here.
fn address(text: &str) -> Option<Target> {
    let text = text.trim_end_matches(['.', ';', ')', '\'', '"']);
    let url = match text.contains("://") {
        true => text.to_owned(),
        false => format!("http://{text}"),
    };
    let url = url.replacen("//0.0.0.0", "//127.0.0.1", 1);
    parse_url(&url).ok()
}

/// Host and port out of a dictionary as Python prints it.
fn ports(text: &str) -> Option<Target> {
    let after = |key: &str| {
        let quoted = [format!("'{key}':"), format!("\"{key}\":")];
        let rest = quoted.iter().find_map(|key| text.split_once(key.as_str()));
        let rest = rest?.1.trim_start();
        let value = rest.split([',', '}']).next()?;
        Some(value.trim().trim_matches(['\'', '"']).to_owned())
    };
    address(&format!("{}:{}", after("host")?, after("port")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(log: &str) -> Option<String> {
        let found = Found::of(log.as_bytes(), LOG_BYTES).unwrap();
        Some(match found.address()? {
            Address::Router(router) => format!("router {router}"),
            Address::Servers(servers) => {
                let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
                servers.join(" ")
            }
        })
    }

    #[test]
    fn a_router_goes_before_its_engines_and_the_last_one_counts() {
        let engines = "\x1b[36m(RolloutManager pid=7)\x1b[0m Ports for engine 0: {'host': '127.0.0.1', \
            'port': 15000, 'nccl_port': 15001}\n\
            Ports for engine 1: {\"port\": 15010, \"host\": \"gpu-2\"}\n";
        assert_eq!(
            reported(engines).unwrap(),
            "http://127.0.0.1:15000 http://gpu-2:15010"
        );
        let router = "INFO Router launched at 127.0.0.1:3521, Prometheus port: 4153\n";
        let all = format!("{router}{engines}");
        assert_eq!(reported(&all).unwrap(), "router http://127.0.0.1:3521");
        let again = format!("{all}SGLang router launched at 10.0.0.5:3999\n");
        assert_eq!(reported(&again).unwrap(), "router http://10.0.0.5:3999");
    }

    #[test]
    fn servers_are_reported_where_there_is_no_router() {
        let log = "(APIServer pid=9) INFO Starting vLLM server on http://0.0.0.0:8123\n\
            (APIServer pid=9) INFO Starting vLLM server on http://0.0.0.0:8123\n\
            Starting vLLM API server 0 on http://10.1.2.3:8000\n";
        assert_eq!(
            reported(log).unwrap(),
            "http://127.0.0.1:8123 http://10.1.2.3:8000"
        );
    }

    #[test]
    fn a_web_server_is_one_where_nothing_says_more() {
        let web = "INFO:     Uvicorn running on http://0.0.0.0:30000 (Press CTRL+C to quit)\n";
        assert_eq!(reported(web).unwrap(), "http://127.0.0.1:30000");
        let both = format!("{web}INFO Starting vLLM server on http://0.0.0.0:8123\n");
        assert_eq!(reported(&both).unwrap(), "http://127.0.0.1:8123");
    }

    #[test]
    fn a_log_of_something_else_tells_nothing() {
        let log =
            b"Router launched at \nPorts for engine 0: {'host': 1}\nPorts for engine x: {}\n\xff\n";
        let found = Found::of(&log[..], LOG_BYTES).unwrap();
        assert_eq!(found.address(), None);
    }

    #[test]
    fn a_log_without_end_is_refused_and_a_long_line_is_cut() {
        let long = "x".repeat(200_000);
        let log = format!("{long}\nRouter launched at 127.0.0.1:3521\n{long}");
        let found = Found::of(log.as_bytes(), LOG_BYTES).unwrap();
        assert!(found.router.is_some());
        let refused = Found::of(BufReader::new(io::repeat(0)), 1 << 20);
        let refused = refused.err().unwrap().to_string();
        assert!(refused.contains("longer than 1.00 MiB"), "{refused}");
        let servers: String = (0..2_000)
            .map(|port| format!("Starting vLLM server on http://127.0.0.1:{}\n", port + 1))
            .collect();
        let refused = Found::of(servers.as_bytes(), LOG_BYTES).err().unwrap();
        assert!(
            refused.to_string().contains("more than 1024 servers"),
            "{refused}"
        );
    }
}
