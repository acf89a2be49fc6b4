//! Newtypes for quantities that must not meet by accident: bytes and pages, two clocks,
//! a process id that the kernel reuses and an identity that it does not.

use std::fmt;

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(serde::Serialize, serde::Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            /// A number as any: what it is stands at the key.
            fn inline_schema() -> bool {
                true
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                <$inner>::json_schema(generator)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

quantity! {
    /// An amount of memory in bytes. Signed, because differences are amounts too.
    Bytes(i64)
}
quantity! {
    /// A number of base pages, as the kernel's counters hold them. Becomes [`Bytes`] only
    /// with the [`PageSize`] in hand. Signed: the kernel's per-CPU counters can read
    /// below zero for a moment.
    Pages(i64)
}
quantity! {
    /// Nanoseconds on CLOCK_BOOTTIME: since boot, counting suspend, never stepped.
    /// The clock on which every row of a recording stands.
    BootNs(i64)
}
quantity! {
    /// Nanoseconds since the Unix epoch, UTC (CLOCK_REALTIME). For people and for joining
    /// with other data; it can be stepped, so durations are taken on [`BootNs`].
    WallNs(i64)
}
quantity! {
    /// A length of time in nanoseconds.
    DurationNs(i64)
}
quantity! {
    /// A process id as the kernel counts it in the initial pid namespace: the thread group
    /// id. What people call "pid". Reused after exit; see [`Upid`].
    Tgid(u32)
}
quantity! {
    /// A process's identity within one recording: never reused, unlike [`Tgid`]. It stands
    /// for the pair (tgid, start time).
    Upid(i64)
}

/// The size of a base page in bytes, as the host that recorded reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize(pub i64);

impl Pages {
    /// This many pages in bytes.
    pub fn to_bytes(self, page_size: PageSize) -> Bytes {
        Bytes(self.0.saturating_mul(page_size.0))
    }
}

impl std::ops::Add for Bytes {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl std::ops::Sub for Bytes {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl std::iter::Sum for Bytes {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self(0), |total, amount| total + amount)
    }
}

impl std::ops::Sub for BootNs {
    type Output = DurationNs;
    fn sub(self, other: Self) -> DurationNs {
        DurationNs(self.0.saturating_sub(other.0))
    }
}

impl std::ops::Add<DurationNs> for BootNs {
    type Output = Self;
    fn add(self, duration: DurationNs) -> Self {
        Self(self.0.saturating_add(duration.0))
    }
}

impl DurationNs {
    /// This length of time in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}
