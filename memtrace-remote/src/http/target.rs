//! Where the server is.

use hyper::Uri;
use hyper::http::uri::Scheme;

/// A server, and what its paths begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) is_tls: bool,
    /// As the resolver takes it.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// As the header `Host` has it.
    pub(crate) authority: String,
    /// Without a slash at its end, and without `/v1`.
    base: String,
}

impl Target {
    /// The path of something that the server offers, as `/v1/completions`.
    pub(crate) fn path(&self, of: &str) -> String {
        format!("{}{of}", self.base)
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.is_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority, self.base)
    }
}

/// Reads a URL as a person gives it: with and without `/v1`, with and without a slash at its end.
pub(crate) fn parse_url(text: &str) -> Result<Target, String> {
    let example = "write it like http://localhost:8000";
    let uri: Uri = text
        .trim()
        .parse()
        .map_err(|error| format!("{error}: {example}"))?;
    let is_tls = match uri.scheme() {
        Some(scheme) if *scheme == Scheme::HTTP => false,
        Some(scheme) if *scheme == Scheme::HTTPS => true,
        _ => {
            return Err(format!(
                "it begins with neither http:// nor https://: {example}"
            ));
        }
    };
    let authority = uri
        .authority()
        .ok_or_else(|| format!("it has no host: {example}"))?;
    if authority.as_str().contains('@') {
        return Err(
            "a name and password in it are not sent: give a key in OPENAI_API_KEY".to_owned(),
        );
    }
    if uri.query().is_some() {
        return Err(format!("it has a query: {example}"));
    }
    let path = uri.path().trim_end_matches('/');
    let base = path.strip_suffix("/v1").unwrap_or(path);
    let host = authority.host();
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    Ok(Target {
        is_tls,
        host: bare.unwrap_or(host).to_owned(),
        port: authority
            .port_u16()
            .unwrap_or(if is_tls { 443 } else { 80 }),
        authority: authority.to_string(),
        base: base.trim_end_matches('/').to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_taken_with_and_without_its_version() {
        let given = [
            "http://gpu-7:8000",
            "http://gpu-7:8000/",
            "http://gpu-7:8000/v1",
            "http://gpu-7:8000/v1/",
        ];
        for text in given {
            let target = parse_url(text).unwrap();
            assert_eq!(target.path("/v1/models"), "/v1/models", "{text}");
            assert_eq!((target.host.as_str(), target.port), ("gpu-7", 8000));
        }
        let below = parse_url("https://proxy.example/team/v1").unwrap();
        assert_eq!(below.path("/tokenize"), "/team/tokenize");
        assert_eq!((below.is_tls, below.port), (true, 443));
        assert_eq!(parse_url("http://[::1]:8000").unwrap().host, "::1");
    }

    #[test]
    fn what_is_no_url_of_a_server_is_refused_with_an_example() {
        for text in [
            "localhost:8000",
            "ftp://host",
            "http://",
            "http://a/?b=c",
            "",
        ] {
            let refusal = parse_url(text).unwrap_err();
            assert!(
                refusal.contains("http://localhost:8000"),
                "{text}: {refusal}"
            );
        }
        assert!(
            parse_url("http://me:secret@host")
                .unwrap_err()
                .contains("OPENAI_API_KEY")
        );
    }
}
