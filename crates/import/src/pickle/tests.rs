use super::*;
use proptest::prelude::*;

/// A value, as a test writes and reads it.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) enum Plain {
    None,
    Bool(bool),
    Int(i64),
    Other,
    Text(String),
    List(Vec<Plain>),
    Dict(Vec<(String, Plain)>),
}

/// Writes as Python's pickle does: protocol 2 and 3 with numbered memos, 4 and 5 without numbers.
fn write(value: &Plain, protocol: u8, out: &mut Vec<u8>) {
    match value {
        Plain::None => out.push(b'N'),
        Plain::Bool(value) => out.push(0x89 - u8::from(*value)),
        Plain::Int(number @ 0..=255) => out.extend([b'K', *number as u8]),
        Plain::Int(number @ 256..=65_535) => {
            out.push(b'M');
            out.extend((*number as u16).to_le_bytes());
        }
        Plain::Int(number) => {
            if let Ok(number) = i32::try_from(*number) {
                out.push(b'J');
                out.extend(number.to_le_bytes());
            } else {
                out.extend([0x8a, 8]);
                out.extend(number.to_le_bytes());
            }
        }
        Plain::Other => {
            out.push(b'G');
            out.extend(1.5_f64.to_be_bytes());
        }
        Plain::Text(text) => match (protocol, u8::try_from(text.len())) {
            (4.., Ok(length)) => {
                out.extend([0x8c, length]);
                out.extend(text.as_bytes());
                out.push(0x94);
            }
            _ => {
                out.push(b'X');
                out.extend((text.len() as u32).to_le_bytes());
                out.extend(text.as_bytes());
            }
        },
        Plain::List(items) if items.len() == 1 => {
            out.push(b']');
            write(&items[0], protocol, out);
            out.push(b'a');
        }
        Plain::Dict(pairs) if pairs.len() == 1 => {
            out.push(b'}');
            write(&Plain::Text(pairs[0].0.clone()), protocol, out);
            write(&pairs[0].1, protocol, out);
            out.push(b's');
        }
        Plain::List(items) => {
            out.extend(b"](");
            items.iter().for_each(|item| write(item, protocol, out));
            out.push(b'e');
        }
        Plain::Dict(pairs) => {
            out.extend(b"}(");
            for (key, value) in pairs {
                write(&Plain::Text(key.clone()), protocol, out);
                write(value, protocol, out);
            }
            out.push(b'u');
        }
    }
}

pub(in super::super) fn pickled(value: &Plain, protocol: u8) -> Vec<u8> {
    let mut out = vec![0x80, protocol];
    write(value, protocol, &mut out);
    out.push(b'.');
    out
}

fn plain(values: &Values, value: Value) -> Plain {
    match value {
        Value::None => Plain::None,
        Value::Bool(value) => Plain::Bool(value),
        Value::Int(number) => Plain::Int(number),
        Value::Other => Plain::Other,
        Value::Text(_) => Plain::Text(values.text(value).unwrap().to_owned()),
        Value::List(_) => {
            let items = values.list(value).unwrap().iter();
            Plain::List(items.map(|item| plain(values, *item)).collect())
        }
        Value::Dict(place) => {
            let (pairs, _) = values.containers[place].as_chunks::<2>();
            let pairs = pairs.iter().map(|[key, value]| {
                let key = values.text(*key).unwrap().to_owned();
                (key, plain(values, *value))
            });
            Plain::Dict(pairs.collect())
        }
    }
}

fn read(bytes: &[u8]) -> Result<Plain, PickleError> {
    let (values, root) = read_until(bytes, "no key")?;
    Ok(plain(&values, root))
}

fn any_plain() -> impl Strategy<Value = Plain> {
    let leaf = prop_oneof![
        Just(Plain::None),
        Just(Plain::Other),
        any::<bool>().prop_map(Plain::Bool),
        any::<i64>().prop_map(Plain::Int),
        (-70_000..70_000_i64).prop_map(Plain::Int),
        ".{0,300}".prop_map(Plain::Text),
    ];
    leaf.prop_recursive(6, 60, 8, |inner| {
        let pair = ("[a-z]{0,9}", inner.clone());
        prop_oneof![
            prop::collection::vec(inner, 0..8).prop_map(Plain::List),
            prop::collection::vec(pair, 0..8).prop_map(Plain::Dict),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_in_every_protocol(value in any_plain(), protocol in 2..=5_u8) {
        prop_assert_eq!(read(&pickled(&value, protocol)).unwrap(), value);
    }

    #[test]
    fn a_cut_pickle_is_an_error(value in any_plain(), part in 0.0..1.0_f64) {
        let whole = pickled(&value, 4);
        let cut = (whole.len() as f64 * part) as usize;
        prop_assert!(read(&whole[..cut]).is_err());
    }

    #[test]
    fn arbitrary_opcodes_never_panic(
        body in prop::collection::vec(
            prop_oneof![
                any::<u8>(),
                prop::sample::select(&b"(.NKJMX]})taesuqrhj\x85\x86\x87\x88\x89\x8a\x8c\x94"[..]),
            ],
            0..200,
        )
    ) {
        let mut bytes = vec![0x80, 4];
        bytes.extend(body);
        drop(read_until(&bytes[..], "segments"));
    }
}

#[test]
fn an_object_is_refused_by_the_name_of_its_opcode() {
    // What `pickle.dumps` writes of an object whose loading runs a command: posix.system.
    let evil = b"\x80\x04\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x02id\x94\x85\x94R\x94.";
    let error = read(evil).unwrap_err();
    assert!(
        matches!(
            error,
            PickleError::Object {
                name: "STACK_GLOBAL",
                at: 19
            }
        ),
        "{error}"
    );
    for (opcode, name) in OBJECTS {
        let error = read(&[0x80, 2, *opcode]).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
}

#[test]
fn what_is_no_such_pickle_says_so() {
    for bytes in [
        &b""[..],
        b"{",
        b"{\"segments\": []}",
        b"\x80\x01}.",
        b"\x80\x06}.",
    ] {
        assert!(
            matches!(read(bytes), Err(PickleError::NotPickle)),
            "{bytes:?}"
        );
    }
    assert!(matches!(
        read(b"\x80\x04\xff"),
        Err(PickleError::Unknown {
            opcode: 0xff,
            at: 2
        })
    ));
}

#[test]
fn what_an_opcode_does_not_find_is_damage() {
    let damaged: [&[u8]; 12] = [
        b".", b"e", b"u", b"a", b"s", b"t", b"\x85", b"(.", b"h\x07", b"q\x05", b"NKa", b"](KKu",
    ];
    for body in damaged {
        let bytes = [b"\x80\x02", body].concat();
        assert!(read(&bytes).is_err(), "{body:?}");
    }
    assert!(matches!(
        read(b"\x80\x02Nh\x07"),
        Err(PickleError::Damaged { at: 3 })
    ));
}

#[test]
fn depth_does_not_matter_and_a_list_within_itself_is_read() {
    let deep = 200_000;
    let mut bytes = vec![0x80, 2];
    bytes.extend(b"]".repeat(deep));
    bytes.extend(b"a".repeat(deep - 1));
    bytes.push(b'.');
    let (values, _) = read_until(&bytes[..], "no key").unwrap();
    assert_eq!(values.containers.len(), deep);
    let (values, root) = read_until(&b"\x80\x02]q\x00h\x00a."[..], "no key").unwrap();
    assert_eq!(values.list(root), Some(&[root][..]));
}

#[test]
fn a_value_that_is_named_again_and_again_is_there_once() {
    // Each list has the one before it ten times: a billion values, if they were copied.
    let mut bytes = b"\x80\x04](NNNNNNNNNNe\x94".to_vec();
    for list in 0..9_u8 {
        bytes.extend(b"](");
        bytes.extend([b'h', list].repeat(10));
        bytes.extend(b"e\x94");
    }
    bytes.push(b'.');
    let (values, _) = read_until(&bytes[..], "no key").unwrap();
    assert_eq!(values.containers.len(), 10);
}

#[test]
fn a_length_that_the_file_does_not_have_takes_no_memory() {
    let long = [&b"\x80\x04\x8d"[..], &u64::MAX.to_le_bytes()].concat();
    assert!(matches!(read(&long), Err(PickleError::TooLarge)));
    let bytes = [&b"\x80\x04\x8e"[..], &u64::MAX.to_le_bytes()].concat();
    assert!(matches!(read(&bytes), Err(PickleError::Short)));
    assert!(matches!(
        read(b"\x80\x04\x8b\xff\xff\xff\x7f"),
        Err(PickleError::Short)
    ));
}

/// `count` times the same bytes, without having them.
struct Repeated(&'static [u8], u64);

impl Read for Repeated {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = buffer.len().min(self.1 as usize);
        for (place, byte) in buffer[..count].iter_mut().enumerate() {
            *byte = self.0[place % self.0.len()];
        }
        self.1 -= count as u64;
        Ok(count)
    }
}

#[test]
fn a_pickle_of_too_many_values_is_refused() {
    for body in [&b"N"[..], b"]", b"}", b"("] {
        let file = b"\x80\x04".chain(Repeated(body, 1 << 40));
        let error = read_within(io::BufReader::new(file), "no key", 8 << 20).unwrap_err();
        assert!(matches!(error, PickleError::TooLarge), "{error}");
    }
}

#[test]
fn nothing_behind_the_last_wanted_key_is_read() {
    let dict = Plain::Dict(vec![
        ("boot_ns".into(), Plain::Int(7)),
        (
            "segments".into(),
            Plain::List(vec![Plain::Dict(vec![("size".into(), Plain::Int(1))])]),
        ),
        ("device_traces".into(), Plain::List(vec![])),
    ]);
    let whole = pickled(&dict, 4);
    let place = |key: &[u8]| whole.windows(key.len()).position(|at| at == key).unwrap();
    // Up to the key behind it, which is no object; the rest is cut off.
    let cut = place(b"device_traces") + b"device_traces".len();
    for bytes in [&whole[..], &whole[..cut]] {
        let (values, root) = read_until(bytes, "segments").unwrap();
        assert_eq!(values.get(root, "boot_ns"), Some(Value::Int(7)));
        let segments = values.get(root, "segments").unwrap();
        let segments = values.list(segments).unwrap();
        assert_eq!(segments.len(), 1);
        assert_eq!(values.get(segments[0], "size"), Some(Value::Int(1)));
        assert_eq!(values.get(root, "device_traces"), None);
    }
    assert!(read_until(&whole[..cut - 1], "segments").is_err());
    // A key of that name elsewhere ends nothing.
    let inner = Plain::Dict(vec![("x".into(), dict)]);
    let whole = pickled(&inner, 2);
    assert!(read_until(&whole[..whole.len() - 1], "segments").is_err());
}

#[test]
fn bytes_that_are_no_text_count_as_what_stands_for_them() {
    // BINUNICODE of 100 bytes that are no UTF-8: each becomes three.
    let mut file = vec![0x80, 4, b'}', b'X', 100, 0, 0, 0];
    file.extend([0xff; 100]);
    file.extend(*b"Ns.");
    let room = |room| read_within(&file[..], "segments", room);
    let needed = (0..20_000).find(|needed| room(*needed).is_ok()).unwrap();
    assert!(needed >= 300, "{needed}");
    let mut ascii = file.clone();
    ascii[8..108].fill(b'a');
    let of_ascii = |room| read_within(&ascii[..], "segments", room);
    let less = (0..20_000)
        .find(|needed| of_ascii(*needed).is_ok())
        .unwrap();
    assert_eq!(needed - less, 200);
}
