//! What a command line means, and what is said at the end.

use super::said::closing_words;
use super::*;
use crate::session::Leftovers;
use clap::Parser;
use clap::error::ErrorKind;
use memtrace_host::ProbeWay;
use memtrace_model::Framework;
use memtrace_report::visible;

/// `memtrace record` by itself.
#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    args: Args,
}

fn parse(arguments: &[&str]) -> Result<Args, clap::Error> {
    Line::try_parse_from(["record"].iter().chain(arguments)).map(|line| line.args)
}

#[test]
fn a_wrong_use_ends_with_2() {
    let cases: &[(&[&str], ErrorKind)] = &[
        (&[], ErrorKind::MissingRequiredArgument),
        (&["--"], ErrorKind::MissingRequiredArgument),
        (&["-p", "0"], ErrorKind::ValueValidation),
        (&["-p", "2147483648"], ErrorKind::ValueValidation),
        (&["--match", "("], ErrorKind::ValueValidation),
        (&["-a", "-p", "1"], ErrorKind::ArgumentConflict),
    ];
    for (arguments, kind) in cases {
        let error = parse(arguments).unwrap_err();
        assert_eq!(error.kind(), *kind, "{arguments:?}: {error}");
        assert_eq!(error.exit_code(), 2, "{arguments:?}");
    }
}

#[test]
fn only_a_commands_output_can_be_read_whatever_targets_there_are() {
    let mut line = <Line as clap::CommandFactory>::command();
    line.build();
    let targets = line.get_groups().find(|group| group.get_id() == "target");
    let mut targets: Vec<_> = targets.unwrap().get_args().collect();
    targets.retain(|target| target.as_str() != "command");
    assert!(targets.len() > 4);
    for target in targets {
        let option = line
            .get_arguments()
            .find(|option| option.get_id() == target);
        let option = format!("--{}", option.and_then(clap::Arg::get_long).unwrap());
        // Some take a value, some none.
        let given = [&[option.as_str()][..], &[option.as_str(), "1"]];
        let mut given = given.into_iter().filter(|line| parse(line).is_ok());
        let with = [given.next().unwrap(), &["--marks-from-output"]].concat();
        let error = parse(&with).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ArgumentConflict, "{with:?}");
    }
}

#[test]
fn what_is_wrong_with_a_pattern_is_said_once() {
    let error = parse(&["--match", "("]).unwrap_err().to_string();
    assert_eq!(error.matches("unclosed group").count(), 1, "{error}");
}

#[test]
fn what_is_no_length_of_time_is_reported_how_to_write_one() {
    assert!(parse(&["-a", "--interval", "5"]).is_err(), "of what?");
    for option in ["-d", "--interval"] {
        for text in ["soon", "", "9999999h"] {
            let error = parse(&["-a", option, text]).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            let message =
                format!("'{text}' is not a length of time: write it like 100ms, 30s, 5m or 1h30m");
            assert!(error.to_string().contains(&message), "{error}");
        }
    }
    for text in ["0s", "-5s", "0", "-5"] {
        let error = parse(&["-a", &format!("--duration={text}")]).unwrap_err();
        assert!(error.to_string().contains("longer than zero"), "{error}");
    }
    let args = parse(&["-a", "-d", "1h30m", "--interval", "250ms"]).unwrap();
    assert_eq!(args.duration, Some(DurationNs(5_400_000_000_000)));
    assert_eq!(args.interval, DurationNs(250_000_000));
    for (text, nanoseconds) in [("5", 5_000_000_000), ("0.5", 500_000_000)] {
        let args = parse(&["-a", "-d", text]).unwrap();
        assert_eq!(args.duration, Some(DurationNs(nanoseconds)), "{text}");
    }
}

#[test]
fn gpus_are_named_in_one_option_or_in_several() {
    let gpus = |line: &[&str]| parse(&[&["-a"], line].concat()).map(|args| args.gpu);
    assert_eq!(gpus(&["--gpu", "0,1"]).unwrap(), ["0", "1"]);
    let several = gpus(&["--gpu", "0", "--gpu", "GPU-6f3c,pci:0000:01:00.0"]);
    assert_eq!(several.unwrap(), ["0", "GPU-6f3c", "pci:0000:01:00.0"]);
    assert_eq!(gpus(&["--gpu", "0,,1"]).unwrap_err().exit_code(), 2);
}

#[test]
fn a_size_is_read_with_its_unit() {
    let size = |text| parse(&["-a", "--vm-min-bytes", text]).map(|args| args.vm_min_bytes);
    assert_eq!(parse(&["-a"]).unwrap().vm_min_bytes, Bytes(1 << 20));
    for (text, bytes) in [("0", 0), ("4096", 4096), ("64K", 65536), ("2GiB", 2 << 30)] {
        assert_eq!(size(text).unwrap(), Bytes(bytes), "{text}");
    }
    for text in ["", "M", "1.5M", "3 parsecs", "9999999T"] {
        let error = size(text).unwrap_err().to_string();
        assert!(
            error.contains("write it like 64KiB, 1MiB or 2GiB"),
            "{error}"
        );
    }
}

#[test]
fn probes_are_named_or_chosen() {
    let probes = |text| parse(&["-a", "--probes", text]).map(|args| args.probes);
    assert_eq!(parse(&["-a"]).unwrap().probes, ProbeChoice::Auto);
    assert_eq!(probes("none").unwrap(), ProbeChoice::None);
    for way in ProbeWay::ALL {
        assert_eq!(probes(way.as_str()).unwrap(), ProbeChoice::Way(way));
    }
    assert_eq!(probes("ptrace").unwrap_err().exit_code(), 2);
}

#[test]
fn the_end_says_how_much_was_recorded() {
    let outcome = |process_count| Outcome {
        dir: PathBuf::from("run"),
        command_exit_code: None,
        process_count,
        row_count: 0,
        written_bytes: Bytes(0),
        absent_logs: Vec::new(),
        storage_failure: None,
        is_interrupted: false,
        leftovers: Leftovers::default(),
    };
    let words = |process_count| closing_words(&outcome(process_count), false, false);
    assert!(words(0).starts_with("no process matched: run holds"));
    assert!(words(1).starts_with("1 process in run;"));
    assert!(words(2).starts_with("2 processes in run;"));
    let alone = closing_words(&outcome(39), false, true);
    assert!(alone.starts_with("GPUs and who held their memory in run;"));
}

#[test]
fn the_name_of_a_command_cannot_act_on_the_terminal() {
    let error = CommandError::NotFound("it's \x1b[2J\u{202e}a\\b\nnö \"训练\"".to_owned());
    assert_eq!(
        visible(&error.to_string()),
        "command not found: it's \\x1b[2J\\u{202e}a\\b\\nnö \"训练\""
    );
}

#[test]
fn each_way_to_name_a_target_is_understood() {
    let target = |arguments: &[&str]| parse(arguments).unwrap().targets.target();
    assert!(matches!(target(&["-a"]), Target::All));
    assert!(matches!(target(&["-p", "2147483647"]), Target::Pids { .. }));
    assert!(matches!(
        target(&["--match", "ray::"]),
        Target::Match { .. }
    ));
    assert!(matches!(target(&["--cgroup", "/"]), Target::Cgroup { .. }));
    let framework = |arguments: &[&str]| match target(arguments) {
        Target::Framework { framework, session } => Some((framework, session)),
        _ => None,
    };
    assert_eq!(framework(&["--ray"]), Some((Framework::Ray, None)));
    let session = Some("/tmp/ray/s".to_owned());
    assert_eq!(
        framework(&["--ray=/tmp/ray/s"]),
        Some((Framework::Ray, session))
    );
    assert_eq!(framework(&["--vllm"]), Some((Framework::Vllm, None)));
    assert!(matches!(target(&["--", "true"]), Target::Command { .. }));
}

#[test]
fn gpus_are_named_by_the_environment_only_for_a_load_and_where_no_option_does() {
    let set = |name: &str| match name {
        "GPU_INDICES" => Some("0, 2".to_owned()),
        "GPU_INTERVAL_MS" => Some("250".to_owned()),
        _ => None,
    };
    let shown = |arguments: &[&str]| {
        let args = parse(&[arguments, &["--", "true"]].concat()).unwrap();
        let (gpus, DurationNs(interval)) = load::gpus(&args, set).unwrap();
        (gpus.join(" "), interval / 1_000_000)
    };
    let load = &["--load", "plan.jsonl"];
    assert_eq!(shown(&[]), (String::new(), 100));
    assert_eq!(shown(load), ("0 2".to_owned(), 250));
    let given = [&load[..], &["--gpu", "1", "--gpu-interval", "1s"]].concat();
    assert_eq!(shown(&given), ("1".to_owned(), 1_000));
    let args = parse(&["--load", "plan.jsonl", "--", "true"]).unwrap();
    let wrong = load::gpus(&args, |_| Some("often".to_owned())).unwrap_err();
    assert!(
        format!("{wrong:#}").contains("GPU_INTERVAL_MS"),
        "{wrong:#}"
    );
}
