//! `record --redact`: command lines, titles, marks and what else processes say of themselves lose what
//! looks like keys and tokens before it is written. All rows and each `run.json` come by here.

use super::sink::Sink;
use memtrace_model::{BootNs, Record, RunInfo, Target, masked, masked_arguments, masked_json};
use memtrace_store::{Stats, StoreError};
use std::borrow::Cow;

/// A sink that is given no secrets.
pub(super) struct Redacting<S>(pub(super) S);

impl<S: Sink> Sink for Redacting<S> {
    fn append(&mut self, row: &Record) -> Result<(), StoreError> {
        match redacted_row(row) {
            Some(row) => self.0.append(&row),
            None => self.0.append(row),
        }
    }
    fn flush(&mut self) -> Result<(), StoreError> {
        self.0.flush()
    }
    fn sync(&mut self) -> Result<(), StoreError> {
        self.0.sync()
    }
    fn rotate(&mut self, now: BootNs) -> Result<(), StoreError> {
        self.0.rotate(now)
    }
    fn update(&mut self, info: RunInfo) -> Result<(), StoreError> {
        self.0.update(redacted(info))
    }
    fn finish(self, info: RunInfo) -> Result<Stats, StoreError> {
        self.0.finish(redacted(info))
    }
    fn stats(&self) -> Stats {
        self.0.stats()
    }
    fn discard(self) {
        self.0.discard();
    }
}

/// What a recording says about itself, without secrets of its command.
pub(super) fn redacted(info: RunInfo) -> RunInfo {
    let target = match info.target {
        Target::Command { argv } => Target::Command {
            argv: masked_arguments(&argv),
        },
        other => other,
    };
    RunInfo { target, ..info }
}

/// The row without secrets; `None` where it has none.
fn redacted_row(row: &Record) -> Option<Record> {
    Some(match row {
        Record::Process(row) => {
            let cmdline = changed(row.cmdline.as_deref()?)?;
            let mut row = row.clone();
            row.cmdline = Some(cmdline.into());
            Record::Process(row)
        }
        Record::Title(row) => {
            let title = changed(row.title.as_deref()?)?;
            let mut row = row.clone();
            row.title = Some(title.into());
            Record::Title(row)
        }
        Record::Mark(row) => {
            let name = changed(&row.name);
            let attributes = row.attributes.as_deref().map(masked_json);
            let attributes = attributes.and_then(owned);
            if name.is_none() && attributes.is_none() {
                return None;
            }
            let mut row = row.clone();
            row.name = name.unwrap_or(row.name);
            row.attributes = attributes.or(row.attributes);
            Record::Mark(row)
        }
        Record::Request(row) => {
            let error = changed(row.error.as_deref()?)?;
            let mut row = row.clone();
            row.error = Some(error);
            Record::Request(row)
        }
        Record::GpuProcess(row) => {
            let cmdline = changed(row.cmdline.as_deref()?)?;
            let mut row = row.clone();
            row.cmdline = Some(cmdline);
            Record::GpuProcess(row)
        }
        Record::Diag(row) => {
            let detail = changed(&row.detail)?;
            let mut row = row.clone();
            row.detail = detail;
            Record::Diag(row)
        }
        // No text, or names of files, groups, devices and the kernel's of processes.
        _ => return None,
    })
}

fn changed(text: &str) -> Option<String> {
    owned(masked(text))
}

fn owned(text: Cow<'_, str>) -> Option<String> {
    match text {
        Cow::Owned(text) => Some(text),
        Cow::Borrowed(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtrace_model::tables::{
        DiagRow, GpuProcessRow, MarkRow, ProcessRow, RequestRow, TitleRow,
    };
    use memtrace_model::{CellSink, ColumnType, TABLES};

    const TEXT: &str = "x --api-key X1 --n 3";

    /// Columns of text that processes choose, and are masked; of all others see below.
    const MASKED: [(&str, &str); 7] = [
        ("process", "cmdline"),
        ("title", "title"),
        ("mark", "name"),
        ("mark", "attributes"),
        ("request", "error"),
        ("gpu_process", "cmdline"),
        ("diag", "detail"),
    ];
    /// Names: of programs, files, groups, devices, roles and runs.
    const NAMES: [(&str, &str); 39] = [
        ("process", "comm"),
        ("process", "exit_signal_sender_comm"),
        ("process", "termination_signal_sender_comm"),
        ("process", "exe"),
        ("process", "cgroup"),
        ("process", "container_id"),
        ("process", "pod"),
        ("process", "container"),
        ("process", "role"),
        ("process", "framework"),
        ("process", "rank"),
        ("title", "comm"),
        ("title", "role"),
        ("mapping", "path"),
        ("mapping", "device"),
        ("layout", "name"),
        ("shm_object", "device"),
        ("shm_object", "name"),
        ("shm_object", "mappers"),
        ("cached_file", "device"),
        ("cached_file", "path"),
        ("tmpfs", "device"),
        ("tmpfs", "mount_point"),
        ("orphaned_shm", "device"),
        ("orphaned_shm", "name"),
        ("survivor", "parent_comm"),
        ("request", "load_run"),
        ("request", "condition"),
        ("vm_event", "file"),
        ("cgroup_mem", "cgroup"),
        ("self_cost", "cgroup"),
        ("gpu_process", "device"),
        ("gpu_process", "comm"),
        ("diag", "subject"),
        ("stack", "function"),
        ("stack", "file"),
        ("stack", "build_id"),
        ("torch_memory", "snapshot"),
        ("torch_memory", "pool"),
    ];
    /// Tables that have no other.
    const OF_KERNEL_AND_DRIVER: [&str; 4] = ["oom", "gpu_device", "cuda_call", "cuda_memory"];

    /// All texts of a row.
    #[derive(Default)]
    struct Texts(String);

    impl CellSink for Texts {
        fn int64(&mut self, _: Option<i64>) {}
        fn int32(&mut self, _: Option<i32>) {}
        fn float64(&mut self, _: Option<f64>) {}
        fn boolean(&mut self, _: Option<bool>) {}
        fn utf8(&mut self, value: Option<&str>) {
            self.0.push_str(value.unwrap_or_default());
        }
    }

    #[test]
    fn every_text_that_a_process_chooses_is_masked() {
        let text = || TEXT.to_owned();
        let rows: [Record; 7] = [
            ProcessRow {
                cmdline: Some(TEXT.into()),
                ..ProcessRow::default()
            }
            .into(),
            TitleRow {
                title: Some(TEXT.into()),
                ..TitleRow::default()
            }
            .into(),
            MarkRow {
                name: text(),
                ..MarkRow::default()
            }
            .into(),
            MarkRow {
                attributes: Some(r#"{"api_key":"X1"}"#.to_owned()),
                ..MarkRow::default()
            }
            .into(),
            RequestRow {
                error: Some(text()),
                ..RequestRow::default()
            }
            .into(),
            GpuProcessRow {
                cmdline: Some(text()),
                ..GpuProcessRow::default()
            }
            .into(),
            DiagRow {
                detail: text(),
                ..DiagRow::default()
            }
            .into(),
        ];
        for (row, (table, _)) in rows.iter().zip(MASKED) {
            assert_eq!(TABLES[row.table_index()].name, table);
            let masked = redacted_row(row).expect("it has a secret");
            let mut texts = Texts::default();
            masked.put(&mut texts);
            assert!(
                texts.0.contains("***") && !texts.0.contains("X1"),
                "{}",
                texts.0
            );
            assert!(redacted_row(&masked).is_none());
        }
    }

    #[test]
    fn a_new_column_of_text_is_masked_or_known_to_be_a_name() {
        for table in TABLES {
            let texts = table.columns.iter();
            for column in texts.filter(|column| column.column_type == ColumnType::Utf8) {
                let is_listed = |list: &[_]| list.contains(&(table.name, column.name));
                let is_known = is_listed(&NAMES)
                    || is_listed(&MASKED)
                    || OF_KERNEL_AND_DRIVER.contains(&table.name)
                    || !column.words.is_empty();
                assert!(is_known, "{}.{}", table.name, column.name);
            }
        }
    }

    #[test]
    fn the_command_that_run_json_tells_is_masked() {
        let argv = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
        let info: RunInfo = serde_json::from_value(serde_json::json!({
            "schema_version": {"major": 2, "minor": 3}, "memtrace_version": "0", "state": "recording",
            "hostname": "h", "kernel": "6", "arch": "a", "page_size_bytes": 4096, "cpu_count": 1,
            "mem_total_bytes": null, "root_tgid": null, "backend": "bpf", "backend_reason": "",
            "interval_ns": 1, "clocks": [], "command_exit_code": null, "host": null, "plan": null,
            "target": {"kind": "command", "argv": ["x", "--token", "a b"]},
        }))
        .expect("a run.json");
        let expected = Target::Command {
            argv: argv(&["x", "--token", "***"]),
        };
        assert_eq!(redacted(info).target, expected);
    }
}
