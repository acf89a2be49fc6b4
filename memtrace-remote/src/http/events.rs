//! A stream of server-sent events, line by line as it comes.

use super::failure::Failure;
use super::gathered::Gathered;
use crate::limits::EVENT_BYTES;

/// What has come of a line that is not whole yet.
#[derive(Debug, Default)]
pub(crate) struct Events {
    half: Gathered,
}

impl Events {
    /// Takes what has come, and hands out the data of each whole line.
    ///
    /// # Errors
    /// When a line is too long, or what `each` answers.
    pub(crate) fn take(
        &mut self,
        mut chunk: &[u8],
        mut each: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        while let Some(end) = chunk.iter().position(|byte| *byte == b'\n') {
            let (line, rest) = chunk.split_at(end);
            chunk = rest.get(1..).unwrap_or_default();
            if self.half.is_empty() {
                data_of(line).map_or(Ok(()), &mut each)?;
            } else {
                self.half.add(line, EVENT_BYTES)?;
                data_of(self.half.bytes()).map_or(Ok(()), &mut each)?;
                self.half.clear();
            }
        }
        self.half.add(chunk, EVENT_BYTES)
    }

    /// Whether it ended in the midst of a line.
    pub(crate) fn is_cut(&self) -> bool {
        !self.half.bytes().trim_ascii().is_empty()
    }
}

/// What a line says, if it is one of data.
fn data_of(line: &[u8]) -> Option<&[u8]> {
    let data = line.strip_prefix(b"data:")?.trim_ascii();
    (!data.is_empty()).then_some(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(chunks: &[&[u8]]) -> (Vec<String>, bool) {
        let mut events = Events::default();
        let mut lines = Vec::new();
        for chunk in chunks {
            let taken = events.take(chunk, |line| {
                lines.push(String::from_utf8_lossy(line).into_owned());
                Ok(())
            });
            taken.unwrap();
        }
        (lines, events.is_cut())
    }

    #[test]
    fn lines_are_whole_however_they_are_cut_on_the_way() {
        let stream =
            b": hello\r\ndata: {\"a\":1}\r\n\r\nevent: x\ndata:{\"b\":2}\n\ndata: [DONE]\n\n";
        let expected = ["{\"a\":1}", "{\"b\":2}", "[DONE]"]
            .map(str::to_owned)
            .to_vec();
        assert_eq!(read(&[stream]), (expected.clone(), false));
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(read(&bytes), (expected, false));
        assert_eq!(read(&[b"data: {\"a"]), (Vec::new(), true));
    }

    #[test]
    fn a_line_without_an_end_is_given_up() {
        let mut events = Events::default();
        let long = vec![b'x'; EVENT_BYTES];
        events.take(&long, |_| Ok(())).unwrap();
        assert!(events.take(b"x", |_| Ok(())).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_pieces_give_the_same_lines(bytes: Vec<u8>, size in 1_usize..9) {
            let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
            prop_assert_eq!(read(&pieces), read(&[&bytes]));
        }
    }
}
