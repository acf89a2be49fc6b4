//! The text of an fdinfo file, as far as it tells of GPU memory.

use crate::fields::pairs;
use memtrace_model::Bytes;

/// A client of a device, and what it holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Client {
    /// The device's PCI address.
    pub(super) pdev: String,
    /// Unique on the device as long as the client lives.
    pub(super) id: i64,
    /// Resident on the device.
    pub(super) device_bytes: Bytes,
    /// Resident in the machine's memory.
    pub(super) host_bytes: Bytes,
}

/// How an amount was reported. Resident is what occupies memory now; `drm-memory-` is amdgpu's
/// older name of it; `drm-total-` also counts what is not resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Way {
    Total,
    Memory,
    Resident,
}

const WAYS: [(&[u8], Way); 3] = [
    (b"drm-resident-", Way::Resident),
    (b"drm-memory-", Way::Memory),
    (b"drm-total-", Way::Total),
];

/// Parses the file; `None` where it tells of no client, or of no memory.
pub(super) fn parse(text: &[u8]) -> Option<Client> {
    let (mut pdev, mut id) = (None, None);
    let mut regions: Vec<(&[u8], Way, Bytes)> = Vec::new();
    for (key, value) in pairs(text) {
        match key {
            b"drm-pdev" => pdev = std::str::from_utf8(value).ok().map(str::to_owned),
            b"drm-client-id" => id = crate::fields::number(value),
            _ => {
                let reported = WAYS
                    .iter()
                    .find_map(|(prefix, way)| Some((key.strip_prefix(*prefix)?, *way)));
                let Some(((region, way), bytes)) = reported.zip(amount(value)) else {
                    continue;
                };
                match regions.iter_mut().find(|(known, ..)| *known == region) {
                    Some(known) if known.1 < way => *known = (region, way, bytes),
                    Some(_) => {}
                    None => regions.push((region, way, bytes)),
                }
            }
        }
    }
    let sum = |wanted: bool| {
        let reported = regions
            .iter()
            .filter(|(name, ..)| is_of_host(name) == Some(wanted));
        reported.map(|(.., bytes)| *bytes).sum()
    };
    // A driver that tells of no region that is known here tells nothing of memory.
    regions
        .iter()
        .find(|(name, ..)| is_of_host(name).is_some())?;
    Some(Client {
        pdev: pdev?,
        id: id?,
        device_bytes: sum(false),
        host_bytes: sum(true),
    })
}

/// Where a region lies: `vram` (amdgpu), `vram0` (xe), `local0` (i915), `stolen`, or in the
/// machine's memory: `gtt` (amdgpu), `system0` (i915), `gtt`, `system` (xe). amdgpu's `cpu`
/// is what could be moved back; it lies in the machine's memory as well.
fn is_of_host(region: &[u8]) -> Option<bool> {
    let name = region.trim_ascii_end();
    let digits = name
        .iter()
        .rev()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    match name.split_at(name.len() - digits).0 {
        b"vram" | b"local" | b"stolen" | b"stolen-local" | b"gds" | b"gws" | b"oa" => Some(false),
        b"gtt" | b"system" | b"cpu" | b"stolen-system" | b"memory" | b"shmem" => Some(true),
        _ => None,
    }
}

/// `N`, `N KiB`, `N MiB`; a number without a unit is bytes.
fn amount(value: &[u8]) -> Option<Bytes> {
    let mut words = value
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    let number: i64 = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
    let unit = match words.next() {
        None => 1,
        Some(b"KiB") => 1 << 10,
        Some(b"MiB") => 1 << 20,
        Some(_) => return None,
    };
    number.checked_mul(unit).map(Bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reported(text: &str) -> Option<(String, i64, i64, i64)> {
        let client = parse(text.as_bytes())?;
        let (device, host) = (client.device_bytes.0, client.host_bytes.0);
        Some((client.pdev, client.id, device, host))
    }

    #[test]
    fn each_driver_is_understood() {
        let amdgpu = "pos:\t0\nflags:\t02100002\nmnt_id:\t25\nino:\t1103\n\
            drm-driver:\tamdgpu\ndrm-client-id:\t17\ndrm-pdev:\t0000:03:00.0\npasid:\t32769\n\
            drm-total-cpu:\t0\ndrm-total-gtt:\t8 MiB\ndrm-total-vram:\t2 GiB\n\
            drm-resident-vram:\t1048576 KiB\ndrm-resident-gtt:\t4096 KiB\n\
            drm-memory-vram:\t1048576 KiB\ndrm-memory-gtt: \t4096 KiB\ndrm-engine-gfx:\t12 ns\n";
        let pdev = "0000:03:00.0".to_owned();
        assert_eq!(reported(amdgpu), Some((pdev.clone(), 17, 1 << 30, 4 << 20)));
        let older = "drm-client-id:\t3\ndrm-pdev:\t0000:03:00.0\ndrm-memory-vram:\t512 KiB\n";
        assert_eq!(reported(older), Some((pdev.clone(), 3, 512 << 10, 0)));
        let i915 = "drm-client-id: 5\ndrm-pdev: 0000:03:00.0\ndrm-total-system0: 6 MiB\n\
            drm-resident-system0: 5 MiB\ndrm-total-local0: 900 MiB\ndrm-resident-local0: 800 MiB\n";
        assert_eq!(reported(i915), Some((pdev.clone(), 5, 800 << 20, 5 << 20)));
        let xe = "drm-client-id:\t9\ndrm-pdev:\t0000:03:00.0\ndrm-total-vram0:\t123\n";
        assert_eq!(reported(xe), Some((pdev, 9, 123, 0)));
    }

    #[test]
    fn what_tells_of_no_memory_is_no_client() {
        for text in [
            "pos:\t0\nflags:\t02\n",
            "drm-driver:\tnvidia-drm\ndrm-pdev:\t0000:01:00.0\ndrm-client-id:\t4\n",
            "drm-client-id:\t4\ndrm-resident-vram:\t4 KiB\n",
            "drm-pdev:\t0000:01:00.0\ndrm-resident-vram:\t4 KiB\n",
        ] {
            assert_eq!(reported(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&text);
        }
    }
}
