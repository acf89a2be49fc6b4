//! One event of a trace, in room that is used again.

use super::json::{Take, Text, To, next_key};
use serde::de::MapAccess;

/// What an event is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Category {
    /// An operator on the CPU.
    Operator,
    /// A kernel, or a copy, on a device.
    OnDevice,
    /// A call of the device's driver or runtime.
    Call,
    /// A range that the program named: steps among them.
    Annotation,
    #[default]
    Other,
}

impl Category {
    /// The word for it in another trace.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::OnDevice => "kernel",
            Self::Call => "call",
            Self::Annotation => "range",
            Self::Other => "other",
        }
    }

    /// The words of Kineto (an MTIA's kernels are CCP events), and of torch before 1.12.
    fn of(word: &str) -> Self {
        match word {
            "cpu_op" | "Operator" => Self::Operator,
            "kernel" | "Kernel" | "gpu_memcpy" | "Memcpy" | "gpu_memset" | "Memset"
            | "mtia_ccp_events" => Self::OnDevice,
            "cuda_runtime"
            | "cuda_driver"
            | "hip_runtime"
            | "xpu_runtime"
            | "mtia_runtime"
            | "privateuse1_runtime"
            | "privateuse1_driver"
            | "Runtime" => Self::Call,
            "user_annotation" => Self::Annotation,
            _ => Self::Other,
        }
    }
}

/// What stands in an event, as far as it is used.
#[derive(Debug, Default)]
pub(super) struct Event {
    /// Whether it is an object, as an event is.
    pub(super) is_object: bool,
    /// `ph`: `X` for what took time, `i` for a moment, `M` for what is said of the trace.
    pub(super) form: Text,
    pub(super) category: Category,
    pub(super) name: Text,
    pub(super) pid: Option<f64>,
    pub(super) tid: Option<f64>,
    /// Its begin in µs after the base of the trace.
    pub(super) ts: Option<f64>,
    /// How long it took in µs.
    pub(super) dur: Option<f64>,
    pub(super) args: Args,
    key: Text,
    word: Text,
}

/// What stands in the arguments of an event, as far as it is used.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Args {
    pub(super) device_type: Option<f64>,
    pub(super) device_id: Option<f64>,
    /// What was allocated; freed, if it is negative.
    pub(super) bytes: Option<f64>,
    pub(super) total_allocated: Option<f64>,
    pub(super) total_reserved: Option<f64>,
}

impl Event {
    /// Forgets the one before.
    pub(super) fn clear(&mut self) {
        for text in [&mut self.form, &mut self.name, &mut self.word] {
            text.0.clear();
        }
        for number in [&mut self.pid, &mut self.tid, &mut self.ts, &mut self.dur] {
            *number = None;
        }
        self.is_object = false;
        self.category = Category::Other;
        self.args = Args::default();
    }

    /// Whether it took time.
    pub(super) fn is_span(&self) -> bool {
        self.form.0 == "X"
    }

    /// Its begin in ns after the base of the trace.
    pub(super) fn begin_ns(&self) -> Option<i64> {
        self.ts.map(to_ns)
    }

    /// How long it took.
    pub(super) fn length_ns(&self) -> i64 {
        self.dur.map_or(0, to_ns).max(0)
    }

    /// The process and the thread; of what ran on a device, the device and the stream.
    pub(super) fn thread(&self) -> (i64, i64) {
        let number = |number: Option<f64>| number.unwrap_or(-1.0) as i64;
        (number(self.pid), number(self.tid))
    }

    /// The device that it ran on.
    pub(super) fn device(&self) -> i64 {
        let (pid, _) = self.thread();
        self.args.device_id.map_or(pid, |device| device as i64)
    }

    /// Whether it is a moment.
    pub(super) fn is_moment(&self) -> bool {
        matches!(&*self.form.0, "i" | "I")
    }
}

/// Nanoseconds of an amount in µs.
fn to_ns(us: f64) -> i64 {
    (us * 1_000.0).round() as i64
}

impl Take for Event {
    fn object<'de, A: MapAccess<'de>>(&mut self, mut object: A) -> Result<(), A::Error> {
        self.is_object = true;
        while next_key(&mut object, &mut self.key)? {
            match &*self.key.0 {
                "ph" => object.next_value_seed(To(&mut self.form))?,
                "cat" => {
                    object.next_value_seed(To(&mut self.word))?;
                    self.category = Category::of(&self.word.0);
                }
                "name" => object.next_value_seed(To(&mut self.name))?,
                "pid" => object.next_value_seed(To(&mut self.pid))?,
                "tid" => object.next_value_seed(To(&mut self.tid))?,
                "ts" => object.next_value_seed(To(&mut self.ts))?,
                "dur" => object.next_value_seed(To(&mut self.dur))?,
                "args" => {
                    object.next_value_seed(To(&mut InArgs(&mut self.args, &mut self.word)))?
                }
                _ => object.next_value_seed(To(&mut Nothing))?,
            }
        }
        Ok(())
    }
}

/// Reads over a value.
pub(super) struct Nothing;

impl Take for Nothing {}

struct InArgs<'a>(&'a mut Args, &'a mut Text);

impl Take for InArgs<'_> {
    fn object<'de, A: MapAccess<'de>>(&mut self, mut object: A) -> Result<(), A::Error> {
        let Self(args, key) = self;
        while next_key(&mut object, key)? {
            match &*key.0 {
                "Device Type" => object.next_value_seed(To(&mut args.device_type))?,
                "Device Id" | "device" => object.next_value_seed(To(&mut args.device_id))?,
                "Bytes" => object.next_value_seed(To(&mut args.bytes))?,
                "Total Allocated" => object.next_value_seed(To(&mut args.total_allocated))?,
                "Total Reserved" => object.next_value_seed(To(&mut args.total_reserved))?,
                _ => object.next_value_seed(To(&mut Nothing))?,
            }
        }
        Ok(())
    }
}
