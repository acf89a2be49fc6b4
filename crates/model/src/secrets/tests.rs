use super::*;

/// Not a key, and of the shape of one.
const HEX: &str = "0123456789abcdef0123456789abcdef0123";

#[test]
fn what_follows_a_name_for_secrets_is_masked() {
    for (text, expected) in [
        (
            "vllm serve m --api-key X1 --port 8000",
            "vllm serve m --api-key *** --port 8000",
        ),
        ("vllm --api-key=X1 m", "vllm --api-key=*** m"),
        ("vllm --API_KEY=X1", "vllm --API_KEY=***"),
        ("x --hf-token X1", "x --hf-token ***"),
        ("x -token X1", "x -token ***"),
        ("x --Password X1 --user u", "x --Password *** --user u"),
        ("x --db.passwd X1", "x --db.passwd ***"),
        ("x --client-secret X1", "x --client-secret ***"),
        ("x --credential X1", "x --credential ***"),
        ("x --basic-auth u:X1", "x --basic-auth ***"),
        (
            "HF_TOKEN=X1 AWS_SECRET_ACCESS_KEY=X1 python t.py",
            "HF_TOKEN=*** AWS_SECRET_ACCESS_KEY=*** python t.py",
        ),
        (
            "docker run -e WANDB_API_KEY=X1 i",
            "docker run -e WANDB_API_KEY=*** i",
        ),
        (
            "srun --export=HF_TOKEN=X1 p",
            "srun --export=HF_TOKEN=*** p",
        ),
        (
            "curl -H Authorization: Bearer X1 u",
            "curl -H Authorization: Bearer *** u",
        ),
        ("curl -H X-Api-Key: X1", "curl -H X-Api-Key: ***"),
        (
            "curl https://h/p?api_key=X1&n=3",
            "curl https://h/p?api_key=***&n=3",
        ),
        (
            "p --c={\"apiKey\": \"X1\", \"n\": 3}",
            "p --c={\"apiKey\": \"***\", \"n\": 3}",
        ),
        ("p {'password': 'a b'}", "p {'password': \"***\"}"),
        ("psql postgres://u:X1@h/d", "psql postgres://u:***@h/d"),
        ("rsync bob:X1@host.example", "rsync bob:***@host.example"),
        ("curl -u bob:X1 https://h", "curl -u bob:*** https://h"),
        ("curl --user 'bob:X1' h", "curl --user 'bob:***' h"),
        ("x --token\nX1\tend", "x --token\n***\tend"),
        ("x --api-key\tX1", "x --api-key\t***"),
        (
            "x --api-key \"X1 X1\" --n 3",
            "x --api-key \"*** ***\" --n 3",
        ),
        ("x TOKEN='X1 X1' y", "x TOKEN='*** ***' y"),
        ("sh -c 'TOKEN=X1' 'y'", "sh -c 'TOKEN=***' 'y'"),
        (
            "curl -H \"Authorization: Bearer X1\" u",
            "curl -H \"Authorization: Bearer ***\" u",
        ),
        (
            "p {\\\"api_key\\\": \\\"X1\\\"}",
            "p {\\\"api_key\\\": \\\"***\\\"}",
        ),
    ] {
        assert_eq!(masked(text), expected);
        assert!(!masked(text).contains("X1"));
        assert_eq!(masked(&masked(text)), expected, "once more changes nothing");
    }
}

#[test]
fn what_has_the_shape_of_a_key_is_masked_wherever_it_stands() {
    let upper = &HEX.to_ascii_uppercase()[..16];
    for key in [
        format!("hf_{HEX}"),
        format!("sk-{HEX}"),
        "sk-ant-api03-abcdefghijklmnop".to_owned(),
        format!("ghp_{HEX}"),
        format!("github_pat_{HEX}"),
        format!("glpat-{HEX}"),
        format!("AKIA{upper}"),
        format!("xoxb-{HEX}"),
        format!("AIza{HEX}"),
        format!("nvapi-{HEX}"),
        format!("eyJhbGciOi.{HEX}.{HEX}"),
    ] {
        for (before, after) in [
            ("python t.py ", " --n 3"),
            ("--x=", ""),
            ("https://", "@h/d"),
            ("\"", "\""),
        ] {
            let text = masked(&format!("{before}{key}{after}")).into_owned();
            assert_eq!(text, format!("{before}***{after}"), "{key}");
        }
    }
}

#[test]
fn words_of_a_vocabulary_names_of_files_and_all_that_is_ordinary_stays() {
    for text in [
        "vllm serve m --max-tokens 128 --tokenizer t --token-ids 1,2",
        "x --max-num-batched-tokens 8192 --tokenizer-mode auto --skip-tokenizer-init",
        "x --pad-token <pad> --eos-token </s> --stop_token=END --tokens-per-second 5",
        "x --api-key-file /run/k --password-file p --ssl-keyfile k --ssl-certfile c",
        "x --no-auth vllm --enable-auth m --auth true --token= --token",
        "x --author me --authors you --secretary s --key value --keys a --monkey m",
        "x --api-key --port 8000",
        "python -m sk-learn-contrib hf_hub sk-lora-adapter task-0123456789abcdef0123456789",
        "curl http://localhost:8000/v1/models ssh://git@host/x s3://bucket/key=1/a",
        "Bearer",
        "PWD=/home/me docker run -u 1000:1000 image:tag@sha256:0123",
        "ray::IDLE",
        "  two  blanks ",
        "",
    ] {
        assert!(
            matches!(masked(text), Cow::Borrowed(same) if same == text),
            "{}",
            masked(text)
        );
    }
}

#[test]
fn arguments_are_masked_one_by_one_with_their_blanks() {
    let of = |arguments: &[&str]| {
        let arguments: Vec<String> = arguments.iter().map(|&word| word.to_owned()).collect();
        masked_arguments(&arguments)
    };
    assert_eq!(
        of(&["x", "--password", "a b c", "--n", "3"]),
        ["x", "--password", "***", "--n", "3"]
    );
    assert_eq!(
        of(&["x", "--password=a", "y"]),
        ["x", "--password=***", "y"]
    );
    assert_eq!(
        of(&["sh", "-c", "TOKEN=a exec x"]),
        ["sh", "-c", "TOKEN=*** exec x"]
    );
    assert_eq!(
        of(&["curl", "-H", "Authorization: Bearer a"]),
        ["curl", "-H", "Authorization: Bearer ***"]
    );
    assert_eq!(
        of(&["x", "--api-key", "--port", "1"]),
        ["x", "--api-key", "--port", "1"]
    );
}

#[test]
fn json_stays_json() {
    let masked = |json: &str| masked_json(json).into_owned();
    assert_eq!(
        masked(r#"{"step":1,"max_tokens":5}"#),
        r#"{"step":1,"max_tokens":5}"#
    );
    assert_eq!(masked(r#"{"token":12345}"#), r#"{"token":"***"}"#);
    assert_eq!(
        masked(r#"{"a":[{"api_key":"X"},"--token X"]}"#),
        r#"{"a":[{"api_key":"***"},"--token ***"]}"#
    );
    assert_eq!(
        masked(r#"{"auth":true,"n":"a=b"}"#),
        r#"{"auth":true,"n":"a=b"}"#
    );
    assert_eq!(masked("--token X"), "--token ***");
}
