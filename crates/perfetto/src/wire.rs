//! The wire format of protocol buffers: fields of whole numbers and of bytes. Every field of a trace
//! is one of these, and every field of a profile of pprof.

/// A message in the making.
#[derive(Clone, Debug, Default)]
pub struct Message(Vec<u8>);

const VARINT: u32 = 0;
const FIXED_64: u32 = 1;
const LENGTH_DELIMITED: u32 = 2;

impl Message {
    /// A field with a whole number.
    pub fn number(&mut self, field: u32, value: u64) {
        self.tag(field, VARINT);
        self.varint(value);
    }

    /// A field with a number that can be below zero (`int64`, not `sint64`).
    pub fn signed(&mut self, field: u32, value: i64) {
        self.number(field, value.cast_unsigned());
    }

    /// A field with a `double`.
    pub fn float(&mut self, field: u32, value: f64) {
        self.tag(field, FIXED_64);
        self.0.extend(value.to_le_bytes());
    }

    /// A field with a text.
    pub fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    /// A field with another message.
    pub fn message(&mut self, field: u32, inner: &Self) {
        self.bytes(field, &inner.0);
    }

    /// The bytes of it.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Takes everything out of it. Its room stays.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, LENGTH_DELIMITED);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn tag(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    #[inline]
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of protobuf.dev/programming-guides/encoding.
    #[test]
    fn fields_are_laid_out_as_the_encoding_guide_says() {
        let mut message = Message::default();
        message.number(1, 150);
        assert_eq!(message.as_bytes(), [0x08, 0x96, 0x01]);
        let mut outer = Message::default();
        outer.message(3, &message);
        assert_eq!(outer.as_bytes(), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        message.clear();
        message.text(2, "testing");
        assert_eq!(message.as_bytes(), b"\x12\x07testing");
        message.clear();
        message.signed(1, -2);
        let minus_two = b"\x08\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01";
        assert_eq!(message.as_bytes(), minus_two);
        message.clear();
        message.float(5, 1.5);
        assert_eq!(message.as_bytes(), b"\x29\0\0\0\0\0\0\xf8\x3f");
    }
}
