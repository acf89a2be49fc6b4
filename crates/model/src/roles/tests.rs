use super::*;

fn role_of(title: &str) -> String {
    let rules = Rules::builtin().expect("rules of the form");
    let looks = ProcessTraits {
        title: Some(title),
        ..ProcessTraits::default()
    };
    let found = rules.find(&looks);
    found.map_or_else(String::new, |found| found.role.to_string())
}

fn child(title: &str, parent: &str, rank: Option<&str>) -> Role {
    let rules = Rules::builtin().expect("rules of the form");
    let parent = Role {
        framework: Some("vLLM".to_owned()),
        role: parent.to_owned(),
        rank: rank.map(str::to_owned),
    };
    let looks = ProcessTraits {
        title: Some(title),
        parent: Some(&parent),
        is_parent_near: true,
        ..ProcessTraits::default()
    };
    rules.find(&looks).expect("a role").role
}

#[test]
fn titles_and_command_lines_of_real_trees_are_known() {
    let cases = [
        (
            "/opt/v/bin/python3 /opt/v/bin/vllm serve /models/q",
            "vLLM API server",
        ),
        (
            "python3 -m vllm.entrypoints.openai.api_server",
            "vLLM API server",
        ),
        (
            "python -mvllm.entrypoints.openai.api_server --port 8000",
            "vLLM API server",
        ),
        (
            "/v/bin/python3 -um vllm.entrypoints.openai.api_server",
            "vLLM API server",
        ),
        ("VLLM::APIServer_1", "vLLM API server 1"),
        ("VLLM::EngineCore", "vLLM engine core"),
        ("VLLM::EngineCore_DP1", "vLLM engine core DP1"),
        ("VLLM::Worker", "vLLM worker"),
        ("VLLM::Worker_TP0", "vLLM worker TP0"),
        (
            "VLLM::Worker_DP0_PP0_TP1_EP1",
            "vLLM worker DP0_PP0_TP1_EP1",
        ),
        ("VLLM::DPCoordinator", "vLLM DP coordinator"),
        (
            "python3 -m vllm.model_executor.models.registry",
            "vLLM model registry inspector",
        ),
        ("sglang::scheduler_DP0_TP1", "SGLang scheduler DP0_TP1"),
        ("sglang::detokenizer", "SGLang detokenizer"),
        ("python3 -m sglang.launch_server --tp 2", "SGLang server"),
        (
            "/ray/core/src/ray/gcs/gcs_server --log_dir=/tmp",
            "Ray gcs_server",
        ),
        (
            "/ray/core/src/ray/raylet/raylet --raylet_socket_name=/tmp",
            "Ray raylet",
        ),
        (
            "python -u /s/ray/autoscaler/_private/monitor.py --logs",
            "Ray autoscaler monitor",
        ),
        (
            "python /s/ray/dashboard/dashboard.py --host=::1",
            "Ray dashboard",
        ),
        (
            "python -u /s/ray/_private/log_monitor.py --session",
            "Ray log monitor",
        ),
        (
            "python /s/ray/_private/workers/default_worker.py --node",
            "Ray idle worker",
        ),
        ("ray::IDLE", "Ray idle worker"),
        ("ray::IDLE_SpillWorker", "Ray spill worker"),
        ("ray::RESTORE_RestoreWorker", "Ray restore worker"),
        ("ray::DashboardAgent", "Ray dashboard agent"),
        ("ray::RuntimeEnvAgent", "Ray runtime env agent"),
        ("ray::Trainer", "Ray actor Trainer"),
        ("ray::Trainer.step", "Ray actor Trainer"),
        ("ray::trainer:Trainer.__init__", "Ray actor Trainer"),
        ("ray::abWorker_0:1:Rollout.__init__", "Ray actor Rollout"),
        ("ray::rollout_worker.step", "Ray actor rollout_worker"),
        ("ray::reader", "Ray task reader"),
        ("ray start --head", "Ray start command"),
        (
            "/v/bin/python3 /v/bin/ray start --head --block",
            "Ray start command",
        ),
        (
            "python -m ray.util.client.server --address=127.0.0.1:6379 --mode=proxy",
            "Ray client server",
        ),
        (
            "python3 /s/ray/_private/workers/setup_worker.py -m ray.util.client.server --mode=proxy",
            "Ray client server",
        ),
        (
            "/v/bin/python /v/bin/torchrun --nproc-per-node 2 t.py",
            "PyTorch elastic agent",
        ),
        (
            "python -m torch.distributed.run t.py",
            "PyTorch elastic agent",
        ),
        (
            "python /t/torch/_inductor/compile_worker/__main__.py --workers=32",
            "PyTorch inductor compile worker",
        ),
        (
            "/v/bin/python3 -c \nimport sys\nif sys.platform != \"linux\":\n    import torch\nfrom ctypes import cdll\ncdll.LoadLibrary(\"/tmp/torchinductor_root/ju/c.so\")\n",
            "PyTorch inductor compile check",
        ),
        (
            "python3 -B -c from multiprocessing.resource_tracker import main;main(32)",
            "resource tracker",
        ),
        (
            "python3 -c from multiprocessing.spawn import spawn_main; spawn_main(1) --multiprocessing-fork",
            "multiprocessing child",
        ),
        (
            "/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus -quiet a.cpp",
            "compiler cc1plus",
        ),
        ("x86_64-linux-gnu-g++-12 -c a.cpp", "compiler g++"),
        ("ptxas -v x.ptx", "compiler ptxas"),
        ("python3 train.py", ""),
        ("cat as.txt", ""),
        ("bash -c as", ""),
    ];
    for (title, role) in cases {
        assert_eq!(role_of(title), role, "{title}");
    }
}

#[test]
fn what_a_command_line_only_speaks_of_is_not_what_it_runs() {
    for title in [
        "pgrep -f vllm serve",
        "pgrep -f /v/bin/vllm serve",
        "grep -rn -m vllm.entrypoints. /srv",
        "vim /v/bin/vllm serve",
        "bash -c exec /v/bin/vllm serve m",
        "tail -f python -m sglang.launch_server",
        "less /s/sglang_router/README",
        "watch ray status /bin/ray start",
        "ps -C /v/bin/torchrun x",
        "cat /t/torch/_inductor/compile_worker/__main__.py",
        "grep from multiprocessing.spawn import -r .",
        "sh -c python3 -c from multiprocessing.resource_tracker import main;main(32)",
        "rg deepspeed.launcher.",
        "/opt/gunicorn/bin/python3 /srv/torchrun/tool.py",
        "/opt/tritonserver/bin/perf_analyzer -m x",
        "bash -c java -cp x org.apache.spark.deploy.SparkSubmit a.py",
        "vim /s/pyspark/daemon.py",
        "celery -A worker inspect ping",
    ] {
        assert_eq!(role_of(title), "", "{title}");
    }
}

#[test]
fn a_role_has_no_line_breaks_whatever_a_title_has() {
    let rules = "[[role]]\nrole = 'loop {kind}'\ntitle = '(?s)^loop-(?<kind>.*)$'\n";
    let rules = Rules::with(rules).expect("rules of the form");
    let looks = ProcessTraits {
        title: Some("loop-a\nb\u{1b}[31m"),
        ..ProcessTraits::default()
    };
    let found = rules.find(&looks).expect("a role");
    assert_eq!(found.role.role, "loop a b [31m");
}

#[test]
fn where_the_title_cannot_be_read_the_name_cut_at_15_bytes_says_what_it_can() {
    let rules = Rules::builtin().expect("rules of the form");
    for (comm, role) in [
        ("VLLM::Worker_TP", "vLLM worker"),
        ("VLLM::EngineCor", "vLLM engine core"),
        ("ray::DashboardA", "Ray dashboard agent"),
        ("ray::RuntimeEnv", "Ray runtime env agent"),
    ] {
        let looks = ProcessTraits {
            comm,
            ..ProcessTraits::default()
        };
        let found = rules.find(&looks).expect(comm);
        assert_eq!(found.role.to_string(), role);
    }
}

#[test]
fn a_worker_without_a_rank_has_its_engines() {
    let rank = |title, parent| child(title, "engine core", parent).rank;
    assert_eq!(rank("VLLM::Worker", Some("DP1")).as_deref(), Some("DP1"));
    assert_eq!(
        rank("VLLM::Worker_TP0", Some("DP1")).as_deref(),
        Some("DP1_TP0")
    );
    assert_eq!(
        rank("VLLM::Worker_DP1_TP0", Some("DP1")).as_deref(),
        Some("DP1_TP0")
    );
    assert_eq!(rank("VLLM::Worker", None), None);
}

#[test]
fn a_helper_is_of_the_framework_that_started_it() {
    let compiler = child("nvcc -c a.cu", "worker", None);
    assert_eq!(compiler.to_string(), "vLLM compiler nvcc");
}

#[test]
fn a_users_rules_are_asked_first() {
    let text = "[[role]]\nframework = 'Mine'\nrole = '{kind} loop'\ntitle = '^VLLM::(?<kind>\\w+)_(?<rank>TP\\d+)'\n";
    let rules = Rules::with(text).expect("rules of the form");
    let find = |title| {
        let looks = ProcessTraits {
            title: Some(title),
            ..ProcessTraits::default()
        };
        rules.find(&looks).map(|found| found.role.to_string())
    };
    assert_eq!(
        find("VLLM::Worker_TP3").as_deref(),
        Some("Mine Worker loop TP3")
    );
    assert_eq!(
        find("VLLM::EngineCore").as_deref(),
        Some("vLLM engine core")
    );
}

#[test]
fn what_is_wrong_with_a_file_is_reported_with_its_line() {
    let cases = [
        (
            "[[role]]\nrole = 'a'\ntitle = '('\n",
            "line 3",
            "unclosed group",
        ),
        ("\n[[role]]\nrole = 'a'\n", "line 2", "nothing to match"),
        ("[[role]]\nrole = '{x}'\ntitle = 'a'\n", "line 1", "{x}"),
        ("[[role]]\nrole = 'a'\ntitel = 'a'\n", "line 3", "titel"),
        ("[[role]]\ntitle = 'a'\n", "line 1", "missing field `role`"),
        ("role = 3\n", "line 1", "sequence"),
        ("[[role]\n", "line 1", "unclosed array table"),
        (
            "\n[[role]]\nrole = ' '\ntitle = 'a'\n",
            "line 2",
            "`role` is empty",
        ),
        (
            "[[role]]\nrole = 'a'\ntitle = 'a'\nrole_of_parent = ''\n",
            "line 1",
            "`role_of_parent` is empty",
        ),
        ("", "has no [[role]]", ""),
        ("# to come\n", "has no [[role]]", ""),
    ];
    for (text, line, what) in cases {
        let error = Rules::with(text).expect_err(text).to_string();
        assert!(
            error.starts_with(line) && error.contains(what) && !error.contains('\n'),
            "{text}: {error}"
        );
    }
}

#[test]
fn a_rule_that_would_leave_a_process_without_a_name_does_not_match() {
    let text = "[[role]]\nrole = '{kind}'\ntitle = '^loop-(?<kind>\\w*)$'\n";
    let rules = Rules::with(text).expect("rules of the form");
    let find = |title| {
        let looks = ProcessTraits {
            title: Some(title),
            ..ProcessTraits::default()
        };
        rules.find(&looks).map(|found| found.role.to_string())
    };
    assert_eq!(find("loop-a").as_deref(), Some("a"));
    assert_eq!(find("loop-"), None);
}
