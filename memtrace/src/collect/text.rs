//! Names and command lines as the kernel keeps them, as text. Bytes that are not UTF-8
//! become U+FFFD; nothing else is changed, so whoever prints them must escape them.

/// A NUL-terminated name.
pub fn name(bytes: &[u8]) -> String {
    let name = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

/// An argument area: arguments separated by NUL, joined by spaces. Programs that write a
/// title over it pad it with NUL or spaces; the padding goes. `None` when nothing is left.
pub fn arguments(bytes: &[u8]) -> Option<String> {
    let end = bytes.iter().rposition(|byte| !matches!(byte, 0 | b' '))?;
    let joined: Vec<u8> = bytes[..=end]
        .iter()
        .map(|byte| if *byte == 0 { b' ' } else { *byte })
        .collect();
    Some(String::from_utf8_lossy(&joined).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_padded_title_loses_its_padding() {
        assert_eq!(
            arguments(b"ray::IDLE\0\0\0\0").as_deref(),
            Some("ray::IDLE")
        );
        assert_eq!(
            arguments(b"python3\0-c\0pass\0").as_deref(),
            Some("python3 -c pass")
        );
        assert_eq!(arguments(b"\0\0\0"), None);
    }

    #[test]
    fn a_name_ends_at_its_terminator() {
        assert_eq!(name(b"VLLM::Worker_TP\0"), "VLLM::Worker_TP");
        assert_eq!(name(b"sh\0garbage"), "sh");
        assert_eq!(name(&[0xff, b'x', 0]), "\u{fffd}x");
    }
}
