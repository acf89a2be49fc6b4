//! One HTML file that asks nothing of anybody: text for a reader without scripts and for printing,
//! the data that is drawn, and the script that draws it. It knows no finding.
//!
//! The policy in its head names what may run by its hash and lets nothing be loaded, so that
//! whatever a traced process called itself stays text. The data is deflated and in base64: a long
//! recording fits into a mail, and no name in it can end the element that it stands in.

mod assets;

use base64::display::Base64Display;
use base64::engine::general_purpose::STANDARD;
use base64::write::EncoderWriter;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use sha2::{Digest, Sha256};
use std::io::{self, BufWriter, Write};

/// Writes a page. `plain` writes the elements that stand there without scripts, `data` the
/// document that is drawn.
///
/// # Errors
/// When `out` can't be written to.
pub fn write(
    out: &mut dyn Write,
    title: &str,
    plain: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    data: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let style = assets::style();
    let scripts = [assets::charts(), assets::script()];
    let [charts, own] = scripts.each_ref().map(|script| hash(script));
    let title = escaped(title);
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         script-src {charts} {own}; style-src {}; img-src data: blob:; base-uri 'none'; \
         form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n\
         <main id=\"page\"></main>\n<div id=\"plain\">\n",
        hash(&style)
    )?;
    plain(out)?;
    out.write_all(b"</div>\n<script id=\"data\" type=\"application/octet-stream;base64\">")?;
    let encoder = EncoderWriter::new(&mut *out, &STANDARD);
    let deflater = DeflateEncoder::new(encoder, Compression::default());
    let mut deflater = BufWriter::new(deflater);
    data(&mut deflater)?;
    let deflater = deflater.into_inner().map_err(|error| error.into_error())?;
    deflater.finish()?.finish()?;
    out.write_all(b"</script>\n")?;
    for script in scripts {
        writeln!(out, "<script>{script}</script>")?;
    }
    out.write_all(b"</body>\n</html>\n")
}

/// Text of an element, or of an attribute between quotes.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The source of a policy that stands for a text.
fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    format!("'sha256-{}'", Base64Display::new(&digest, &STANDARD))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(title: &str, plain: &str, data: &str) -> String {
        let mut out = Vec::new();
        write(
            &mut out,
            title,
            |out| out.write_all(plain.as_bytes()),
            |out| out.write_all(data.as_bytes()),
        )
        .expect("a Vec can be written to");
        String::from_utf8(out).expect("a page is UTF-8")
    }

    fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
        let (_, rest) = text.split_once(begin).expect("the begin");
        rest.split_once(end).expect("the end").0
    }

    #[test]
    fn the_data_comes_back_and_nothing_in_it_ends_its_element() {
        use std::io::Read;
        let data = "{\"name\":\"</script><script>alert(1)</script>\"}".repeat(1_000);
        let page = page("t", "", &data);
        let begin = "<script id=\"data\" type=\"application/octet-stream;base64\">";
        let block = between(&page, begin, "</script>");
        let reader = base64::read::DecoderReader::new(block.as_bytes(), &STANDARD);
        let mut back = String::new();
        let read = flate2::read::DeflateDecoder::new(reader).read_to_string(&mut back);
        read.expect("deflated data");
        assert_eq!(back, data);
        assert!(block.len() < data.len() / 10);
    }

    #[test]
    fn what_runs_is_named_by_its_hash_and_nothing_can_be_loaded() {
        let page = page("a </title> & 'b'", "<p>text</p>\n", "{}");
        assert!(page.contains("<title>a &lt;/title&gt; &amp; &#39;b&#39;</title>"));
        let policy = between(&page, "Content-Security-Policy\" content=\"", "\"");
        assert!(policy.starts_with("default-src 'none'; "), "{policy}");
        let (_, scripts) = page.split_once("</div>").expect("the scripts");
        let mut count = 0;
        for script in scripts.split("<script>").skip(1) {
            let script = script.split_once("</script>").expect("an end").0;
            assert!(policy.contains(&hash(script)), "{script}");
            count += 1;
        }
        assert_eq!(count, 2);
        let style = between(&page, "<style>", "</style>");
        assert!(policy.contains(&format!("style-src {}", hash(style))));
        for allowed in ["unsafe", "http", "self", "*"] {
            assert!(!policy.contains(allowed), "{policy}");
        }
        // By which a hash is written in a policy: RFC 4648, of SHA-256 as FIPS 180-4 has it.
        let empty = "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='";
        assert_eq!(hash(""), empty);
    }

    #[test]
    fn no_part_of_the_page_ends_early() {
        for part in [assets::charts(), assets::script()] {
            assert!(part.len() > 10_000);
            assert!(!part.to_ascii_lowercase().contains("</script"));
            assert!(!part.contains("<!--"));
        }
        assert!(!assets::style().to_ascii_lowercase().contains("</style"));
        for rule in [".uplot", "@media print"] {
            assert!(assets::style().contains(rule), "{rule}");
        }
    }
}
