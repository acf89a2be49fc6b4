//! The frame of a stack: how it is called, and which one a stack is named after.

use memtrace_model::tables::StackRow;
use memtrace_model::{FrameKind, keys};

/// Functions that a native one is reported with.
const CALLERS_MAX: usize = 2;
/// So much of the name of a native function is reported.
const SHORT_MAX: usize = 60;

/// Libraries that hand out memory or run whatever is called: not who asked for it.
const NOT_WHO_ASKED: [&str; 10] = [
    "libc.so",
    "libc-2.",
    "ld-linux",
    "ld-2.",
    "libstdc++",
    "libgcc_s",
    "libpthread",
    "libjemalloc",
    "libtcmalloc",
    "libmimalloc",
];

/// Begins of functions of standard libraries that are compiled into a program, and do the same.
const FUNCTIONS_NOT_WHO_ASKED: [&str; 7] = [
    "std::",
    "alloc::",
    "<alloc::",
    "core::",
    "<core::",
    "__gnu_cxx::",
    "operator new",
];

/// Packages that hand out memory, as allocators do.
const PACKAGES_NOT_WHO_ASKED: [&str; 9] = [
    "numpy",
    "scipy",
    "pandas",
    "pyarrow",
    "torch",
    "jax",
    "jaxlib",
    "tensorflow",
    "vllm/device_allocator",
];

/// A frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StackFrame {
    /// Its line is that of a native one, too, where `source` is known.
    pub(super) row: StackRow,
    /// The source file of a native one.
    pub(super) source: Option<String>,
}

keys! { as
    /// A frame of a stack.
    FrameKeys of frame: StackFrame {
        /// What it is of.
        kind: Option<FrameKind> = frame.row.kind,
        /// The function; null where no symbol is known.
        function: Option<String> = frame.row.function.clone(),
        /// The source file of Python, or the library or program.
        file: Option<String> = frame.row.file.clone(),
        /// The line of Python, or of `source`.
        line: Option<i64> = frame.row.line,
        /// Build id of the library or program.
        build_id: Option<String> = frame.row.build_id.clone(),
        /// The source file of a native function, as its debug information has it; null where that is not
        /// on the machine that reports.
        source: Option<String> = frame.source.clone(),
        /// Of a native frame the address as the library or program counts.
        address: Option<i64> = frame.row.address,
    }
}

impl From<StackRow> for StackFrame {
    fn from(row: StackRow) -> Self {
        Self { row, source: None }
    }
}

impl StackFrame {
    /// The name of a native function without its parameters.
    pub(crate) fn short(&self) -> Option<String> {
        let name = self.row.function.as_deref()?;
        let name = name.replace("(anonymous namespace)::", "");
        let end = name.find('(').filter(|end| *end > 0);
        let name = &name[..end.unwrap_or(name.len())];
        Some(match name.char_indices().nth(SHORT_MAX) {
            Some((end, _)) => format!("{}…", &name[..end]),
            None => name.to_owned(),
        })
    }

    /// `sched/output.py:118 update_from_output`, `pool.cc:42 grow (libfoo.so)`, or `grow (libfoo.so)`.
    pub(crate) fn in_words(&self) -> String {
        let row = &self.row;
        let file = row.file.as_deref().unwrap_or_default();
        match row.kind {
            Some(FrameKind::Python) => {
                let function = row.function.as_deref();
                let line = row.line.map_or_else(String::new, |line| format!(":{line}"));
                let function = function.unwrap_or_default();
                format!("{}{line} {function}", importable(file))
            }
            _ => {
                let file = base(file);
                match (self.short(), row.address) {
                    (Some(function), _) if file.is_empty() => function,
                    (Some(function), _) => format!("{}{function} ({file})", self.source_line()),
                    (None, Some(address)) if !file.is_empty() => format!("{file}+{address:#x}"),
                    (None, None) if !file.is_empty() => format!("code of {file}"),
                    _ => "code of no file".to_owned(),
                }
            }
        }
    }

    /// `pool.cc:42 `; nothing where it is not known.
    fn source_line(&self) -> String {
        let source = self.source.as_deref().zip(self.row.line);
        source.map_or_else(String::new, |(file, line)| {
            format!("{}:{line} ", base(file))
        })
    }

    pub(super) fn is_python(&self) -> bool {
        self.row.kind == Some(FrameKind::Python)
    }

    /// Whether a program made it as it ran, and gave it a name. What torch says of its own has no address.
    fn is_made(&self) -> bool {
        let row = &self.row;
        let is_sampled = row.kind == Some(FrameKind::Native) && row.address.is_some();
        is_sampled && row.file.is_none() && row.function.is_some()
    }

    fn asked_for_it(&self) -> bool {
        let file = self.row.file.as_deref().unwrap_or_default();
        if !self.is_python() {
            let (file, name) = (base(file), self.row.function.as_deref().unwrap_or_default());
            // `<T as alloc::…>` is a function of the library for a type of the program.
            return !NOT_WHO_ASKED
                .iter()
                .any(|library| file.starts_with(library))
                && !FUNCTIONS_NOT_WHO_ASKED
                    .iter()
                    .any(|begin| name.starts_with(begin))
                && !name.contains(" as alloc::");
        }
        match packaged(file) {
            Some(path) => {
                let is_within = |package: &str| {
                    let rest = path.strip_prefix(package);
                    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                };
                !PACKAGES_NOT_WHO_ASKED.iter().any(|one| is_within(one))
            }
            // The standard library, and what is frozen into the interpreter.
            None => !file.contains("/lib/python3.") && !file.starts_with('<'),
        }
    }

    /// What makes two frames one line: call sites within a native function are not distinguished.
    pub(super) fn key(&self) -> Self {
        match self.is_python() {
            true => self.alone(),
            false => self.shown().without_source(),
        }
    }

    /// How it is shown: of a native function with its line, if that is known, and not with its address.
    pub(super) fn shown(&self) -> Self {
        let mut frame = self.alone();
        if frame.row.function.is_some() {
            frame.row.address = None;
        }
        frame
    }

    fn without_source(mut self) -> Self {
        if self.source.take().is_some() {
            self.row.line = None;
        }
        self
    }

    /// The same function, wherever in it.
    pub(super) fn without_line(&self) -> Self {
        let mut frame = self.clone();
        // Another build has its code elsewhere.
        (frame.row.line, frame.row.address) = (None, None);
        frame.source = None;
        frame
    }

    /// The same in whatever stack it stands.
    pub(super) fn alone(&self) -> Self {
        let mut row = self.row.clone();
        (row.ts, row.boot_ns, row.stack_id, row.depth) = Default::default();
        let source = self.source.clone();
        Self { row, source }
    }
}

/// The last part of a path.
pub(super) fn base(path: &str) -> &str {
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    path.rsplit('/').next().unwrap_or(path)
}

/// A path as an import names it: below the directory of packages; of others the file alone.
fn importable(path: &str) -> &str {
    packaged(path).unwrap_or_else(|| match path.starts_with('<') {
        true => path,
        false => base(path),
    })
}

/// The path below the directory of packages.
fn packaged(path: &str) -> Option<&str> {
    let packages = ["/site-packages/", "/dist-packages/"];
    let place = packages.map(|packages| Some(path.rfind(packages)? + packages.len()));
    place
        .into_iter()
        .flatten()
        .max()
        .map(|place| &path[place..])
}

/// The frame that a stack is named after: the innermost line of Python that asked for memory, else the
/// innermost function that did, with who called that. Before a runtime comes the code that it made.
pub(super) fn named_after(frames: &[StackFrame]) -> Option<(&StackFrame, &[StackFrame])> {
    let mut python = frames.iter().filter(|frame| frame.is_python());
    let first = python.clone().next();
    if let Some(python) = python.find(|frame| frame.asked_for_it()).or(first) {
        return Some((python, &[]));
    }
    // Code that a program made as it ran asked its runtime.
    let made = frames.iter().position(StackFrame::is_made);
    let place = made.or_else(|| frames.iter().position(StackFrame::asked_for_it));
    let place = place.unwrap_or(0);
    let (named, callers) = frames.get(place..)?.split_first()?;
    let count = callers.len().min(CALLERS_MAX);
    Some((named, callers.get(..count)?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn frame(
        kind: FrameKind,
        function: Option<&str>,
        file: &str,
        line: Option<i64>,
    ) -> StackFrame {
        StackFrame::from(StackRow {
            kind: Some(kind),
            function: function.map(str::to_owned),
            file: Some(file.to_owned()),
            line,
            address: (kind == FrameKind::Native).then_some(0x10),
            ..StackRow::default()
        })
    }

    #[test]
    fn a_stack_is_named_after_its_innermost_python_else_after_who_asked_the_allocator() {
        let malloc = frame(FrameKind::Native, Some("malloc"), "/lib/libc.so.6", None);
        let grow = frame(FrameKind::Native, Some("grow"), "/x/libfoo.so", None);
        let python = frame(
            FrameKind::Python,
            Some("f"),
            "/v/site-packages/a/b.py",
            Some(3),
        );
        let text = |frames: &[&StackFrame]| {
            let frames: Vec<StackFrame> = frames.iter().map(|one| (*one).clone()).collect();
            named_after(&frames).map(|(frame, _)| frame.in_words())
        };
        let python_line = Some("a/b.py:3 f".to_owned());
        assert_eq!(text(&[&malloc, &grow, &python]), python_line);
        let of = |function, file, line| frame(FrameKind::Python, Some(function), file, Some(line));
        let ones = of("ones", "/v/site-packages/numpy/n.py", 9);
        let queue = of("put", "/usr/lib/python3.12/queue.py", 1);
        assert_eq!(text(&[&malloc, &ones, &queue, &python]), python_line);
        // An allocator of vLLM, which torch calls, is not who asked; other code of it is.
        let callback = of(
            "malloc",
            "/v/site-packages/vllm/device_allocator/cumem.py",
            2,
        );
        let load = of("load_model", "/v/site-packages/vllm/worker.py", 7);
        let load_line = Some("vllm/worker.py:7 load_model".to_owned());
        assert_eq!(text(&[&callback, &load, &python]), load_line);
        let ones_line = Some("numpy/n.py:9 ones".to_owned());
        assert_eq!(text(&[&malloc, &ones, &queue]), ones_line);
        assert_eq!(text(&[&malloc, &grow]), Some("grow (libfoo.so)".to_owned()));
        assert_eq!(text(&[&malloc]), Some("malloc (libc.so.6)".to_owned()));
        assert_eq!(text(&[]), None);
        for library in [
            "alloc::vec::from_elem",
            "<u8 as alloc::vec::spec_from_elem::SpecFromElem>::from_elem",
            "std::vector<int>::push_back(int const&)",
            "operator new(unsigned long)",
        ] {
            let library = frame(FrameKind::Native, Some(library), "/x/libfoo.so", None);
            let named = text(&[&malloc, &library, &grow]);
            assert_eq!(named, Some("grow (libfoo.so)".to_owned()));
        }
        let mut made = frame(FrameKind::Native, Some("JS:*grow a.js:7"), "", None);
        made.row.file = None;
        let mut of_torch = frame(FrameKind::Native, Some("operator new"), "", None);
        (of_torch.row.file, of_torch.row.address) = (None, None);
        let named = text(&[&of_torch, &grow]);
        assert_eq!(named, Some("grow (libfoo.so)".to_owned()));
        let runtime = "v8::(anonymous namespace)::Fill(int)";
        let runtime = frame(FrameKind::Native, Some(runtime), "/usr/bin/node", None);
        let made_name = Some("JS:*grow a.js:7".to_owned());
        assert_eq!(text(&[&malloc, &runtime, &made]), made_name);
        assert_eq!(
            text(&[&malloc, &runtime]),
            Some("v8::Fill (node)".to_owned())
        );
        let stripped = frame(FrameKind::Native, None, "/x/prog (deleted)", None);
        assert_eq!(text(&[&stripped]), Some("prog+0x10".to_owned()));
    }
}
