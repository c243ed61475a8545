//! The language: printed trees parse to themselves, input has the stock shell's meaning, and no
//! input panics.

use std::time::{Duration, Instant};

use evenkeel_shell::language::ast::{Block, Call, Expr, Operator, StringPart};
use evenkeel_shell::language::{parse, parse_with};
use evenkeel_shell::value::Value;
use proptest::prelude::*;

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Nil),
        any::<bool>().prop_map(Value::Bool),
        (0..=i64::MAX).prop_map(Value::Int),
        (0.0..1e300f64).prop_map(Value::Float),
        proptest::collection::vec(any::<u8>(), 0..12).prop_map(Value::Str),
        "[ -~é\n]{0,12}".prop_map(Value::text),
        "[a-zA-Z_][a-z_0-9]{0,6}".prop_map(Value::Symbol),
        "[ -~]{1,6}".prop_map(Value::Symbol),
    ]
}

fn name() -> impl Strategy<Value = String> {
    "v_[a-z]{1,4}"
}

fn expr() -> impl Strategy<Value = Expr> {
    let literal = scalar().prop_map(Expr::Literal);
    literal.prop_recursive(5, 40, 5, |inner| {
        let boxed = || inner.clone().prop_map(Box::new);
        let operator = proptest::sample::select(Operator::ALL);
        let block = (proptest::collection::vec(name(), 0..3), inner.clone());
        let block = block.prop_map(|(names, body)| Block { names, body });
        let args = proptest::collection::vec(inner.clone(), 0..4);
        let text = (proptest::collection::vec(any::<u8>(), 1..5), inner.clone());
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Expr::Array),
            proptest::collection::vec((inner.clone(), inner.clone()), 0..4).prop_map(Expr::Hash),
            (boxed(), boxed(), any::<bool>())
                .prop_map(|(from, to, exclusive)| Expr::Range(from, to, exclusive)),
            (operator, boxed(), boxed()).prop_map(|(o, a, b)| Expr::Binary(o, a, b)),
            boxed().prop_map(Expr::Not),
            (name(), boxed()).prop_map(|(name, value)| Expr::Assign(name, value)),
            (boxed(), boxed()).prop_map(|(of, key)| Expr::Index(of, key)),
            (boxed(), boxed(), boxed()).prop_map(|(c, a, b)| Expr::If(c, a, b)),
            (boxed(), boxed()).prop_map(|(c, body)| Expr::While(c, body)),
            (name(), boxed(), boxed()).prop_map(|(name, over, body)| Expr::For(name, over, body)),
            text.prop_map(|(text, code)| Expr::Text(vec![StringPart::Text(text), StringPart::Code(code)])),
            ("[a-z]{2}_c", args.clone()).prop_map(|(name, args)| Expr::Call(Box::new(Call {
                receiver: None,
                name,
                args,
                block: None
            }))),
            (inner.clone(), "m_[a-z]{2}", args, proptest::option::of(block)).prop_map(
                |(receiver, name, args, block)| Expr::Call(Box::new(Call {
                    receiver: Some(receiver),
                    name,
                    args,
                    block
                }))
            ),
        ]
    })
}

fn source() -> impl Strategy<Value = String> {
    let piece = proptest::sample::select(vec![
        "put",
        "'t'",
        "\"a#{",
        "}",
        "\"",
        "'",
        "(",
        ")",
        "[",
        "]",
        "{",
        "|",
        "do",
        "end",
        "if",
        "x",
        "=",
        "=>",
        ",",
        ".",
        "..",
        "-",
        "1",
        "1.5e",
        "0x",
        ":",
        "::",
        "NAME",
        "name:",
        "?",
        "!",
        "%w[",
        "\\",
        "\n",
        ";",
        "#",
        " ",
        "&&",
        "*",
        "org.apache",
        "Bytes",
        "begin",
        "rescue",
        "while",
        "for",
        "in",
        "\\x",
        "\\u{",
        "é",
        "\0",
        "not",
        "<<",
    ]);
    proptest::collection::vec(piece, 0..30).prop_map(|pieces| pieces.join(""))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn values_read_back_as_they_are_printed(value in scalar()) {
        prop_assert_eq!(parse(&value.inspect()), Ok(vec![Expr::Literal(value)]));
    }

    #[test]
    fn trees_read_back_as_they_are_printed(tree in expr()) {
        let printed = tree.to_string();
        let mut variables = Default::default();
        prop_assert_eq!(parse_with(&printed, &mut variables), Ok(vec![tree]), "{}", printed);
    }

    #[test]
    fn no_text_panics(text in ".{0,60}") {
        let _ = parse(&text);
    }

    #[test]
    fn no_source_panics(text in source()) {
        if let Err(error) = parse(&text) {
            let (_, line, column) = error.position(&text);
            prop_assert!(column <= line.chars().count());
        }
    }
}

/// `EVENKEEL_FUZZ_SECONDS` sets its duration.
#[test]
fn mutated_statements_do_not_panic() {
    use proptest::strategy::ValueTree;
    let seconds = std::env::var("EVENKEEL_FUZZ_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut runner = proptest::test_runner::TestRunner::default();
    let seeds = include_str!("../../../interop/shell/day.rb");
    let change = (0..seeds.len(), 0..seeds.len(), source());
    while Instant::now() < end {
        let (a, b, more) = change.new_tree(&mut runner).expect("a change").current();
        let mut text = seeds.as_bytes()[a.min(b)..a.max(b)].to_vec();
        text.truncate(400);
        let middle = text.len() / 2;
        text.splice(middle..middle, more.bytes());
        let _ = parse(&String::from_utf8_lossy(&text));
    }
}

#[test]
fn deep_nesting_is_refused() {
    for open in [
        "(", "[", "{1=>", "-", "!", "a(", "[\"#{", "if a\n", "x ? ", "1 + ", "begin\n", "1 ** ", "a.b.",
        "x if ", "a and ", "a[0]",
    ] {
        assert!(parse(&open.repeat(20_000)).is_err(), "{open}");
    }
}

fn shown(source: &str) -> String {
    let statements = parse(source).unwrap_or_else(|e| panic!("{source}: {e:?}"));
    statements.iter().map(Expr::to_string).collect::<Vec<_>>().join("; ")
}

#[test]
fn commands_as_they_are_typed() {
    for (typed, meant) in [
        ("list", "list()"),
        ("get 't', \"r\\x01\", ['f:a', \"g\"]", r#"get("t", "r\u0001", ["f:a", "g"])"#),
        (
            "create 't', {NAME => 'f', VERSIONS => 3}, SPLITS => ['a']",
            r#"create("t", {NAME => "f", VERSIONS => 3}, {SPLITS => ["a"]})"#,
        ),
        ("scan 't', LIMIT: 2, 'A' => nil # all", r#"scan("t", {:LIMIT => 2, "A" => nil})"#),
        ("scan('t', {\n  LIMIT => 2,\n})", r#"scan("t", {LIMIT => 2})"#),
        ("put 't',\n 'r'", r#"put("t", "r")"#),
        ("puts 1; puts 2", "puts(1); puts(2)"),
        ("put 't', 'r', 'f:q', -5", r#"put("t", "r", "f:q", -5)"#),
        ("t = get_table 't'; t.put 'r', 'f:q', 1", r#"(t = (get_table("t"))); (t).put("r", "f:q", 1)"#),
        ("x = 1; x -1", "(x = (1)); ((x) - (1))"),
        ("puts (1 + 2) * 3", "puts(((((1) + (2))) * (3)))"),
        ("is_enabled('t') ? 1 : 2", "if (is_enabled(\"t\"))\n1\nelse\n2\nend"),
        (
            "org.apache.hadoop.hbase.util.Bytes.toBytes('a')",
            r#"(org.apache.hadoop.hbase.util.Bytes).toBytes("a")"#,
        ),
        ("CompareFilter::CompareOp.valueOf('EQUAL')", r#"(CompareFilter::CompareOp).valueOf("EQUAL")"#),
        ("disable 't' if exists 't'", "if (exists(\"t\"))\ndisable(\"t\")\nelse\nnil\nend"),
        ("list.each { |t| puts t }", "(list()).each() { |t|\nputs(t)\n}"),
        (
            "(1..3).each do |i|\n put 't', \"r#{i}\"\nend",
            "(((1)..(3))).each() { |i|\nput(\"t\", \"r#{i}\")\n}",
        ),
        ("%w[a b]", r#"["a", "b"]"#),
        ("'a\\'b\\n'", r#""a'b\\n""#),
        ("'a' 'b'", r#""ab""#),
        (r#""a#{"b#{"'}"}{"}""#, r##""a#{"b#{"'}"}{"}""##),
        (r#""a#{'#{' + "\"}"}c""#, r##""a#{(("\#{") + ("\"}"))}c""##),
    ] {
        assert_eq!(shown(typed), meant, "{typed}");
    }
}

#[test]
fn unfinished_statements_are_incomplete() {
    for source in [
        "create 't',",
        "scan 't', {",
        "puts 'a",
        "(1..3).each do |i|",
        "1 +",
        "if x",
        "get(",
        "x = ",
        "put 't', \\\n",
        "a =",
    ] {
        assert!(parse(source).expect_err(source).incomplete, "{source}");
    }
}

#[test]
fn syntax_errors_carry_their_position() {
    for (source, at, message) in [
        ("scan 't' {", 9, "unexpected '{'"),
        ("get 't', )", 9, "unexpected ')'"),
        ("def x", 0, "`def' is not supported by this shell"),
        ("puts 99999999999999999999", 5, "a number that does not fit in 64 bits"),
        ("puts \"\\xzz\"", 6, "invalid escape in a string"),
        ("puts `ls`", 5, "shell commands in backquotes are not supported"),
        ("1 2", 2, "unexpected integer literal"),
    ] {
        let error = parse(source).expect_err(source);
        assert_eq!((error.at, error.message.as_str(), error.incomplete), (at, message, false), "{source}");
    }
}
