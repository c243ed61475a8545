//! Tests of the whole of [`Configuration`].

use super::defaults::{DEFAULTS, RENAMED};
use super::*;

const HANDLERS: &str = "hbase.regionserver.handler.count";

fn conf() -> Configuration {
    let properties = [("java.io.tmpdir", "/tmp"), ("user.name", "alice")];
    Configuration::with_system_properties(properties.map(|(k, v)| (k.to_owned(), v.to_owned())).into())
}

fn site(properties: &[(&str, &str)]) -> Configuration {
    let mut conf = conf();
    conf.add_xml("/etc/hbase-site.xml", &xml(properties)).unwrap();
    conf
}

fn xml(properties: &[(&str, &str)]) -> String {
    let one = |(k, v): &(&str, &str)| format!("<property><name>{k}</name><value>{v}</value></property>");
    format!(
        "<?xml version=\"1.0\"?><configuration>{}</configuration>",
        properties.iter().map(one).collect::<String>()
    )
}

#[test]
fn built_in_defaults_expand_system_properties() {
    assert_eq!(conf().get_str("hbase.rootdir").unwrap(), "/tmp/hbase-alice/hbase");
    assert_eq!(conf().get_i32(HANDLERS).unwrap(), 30);
    assert_eq!(conf().source_of(HANDLERS).unwrap(), "built-in default");
    assert!(!conf().is_set(HANDLERS));
}

#[test]
fn the_table_has_each_key_once_and_every_default_expands() {
    let keys: BTreeSet<_> = DEFAULTS.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys.len(), DEFAULTS.len());
    for (key, _) in DEFAULTS {
        assert!(!conf().get(key).unwrap().unwrap_or_default().contains("${"), "{key}");
    }
    for (present, older) in RENAMED {
        assert!(keys.contains(present) && !keys.contains(older), "{present} {older}");
    }
}

#[test]
fn command_line_over_site_over_default() {
    let mut conf = site(&[(HANDLERS, "40"), ("hbase.master.port", "1")]);
    conf.set(HANDLERS, "50");
    assert_eq!(conf.get_i32(HANDLERS).unwrap(), 50);
    assert_eq!(conf.source_of(HANDLERS).unwrap(), "command line");
    conf.unset(HANDLERS);
    assert_eq!(conf.get_i32(HANDLERS).unwrap(), 40);
    assert_eq!(conf.get_port("hbase.master.port").unwrap(), 1);
    assert_eq!(conf.get_port("hbase.regionserver.port").unwrap(), 16020);
}

#[test]
fn a_final_property_stands_against_later_resources_only() {
    let mut conf = conf();
    let first = "<configuration><property><name>k</name><value>1</value><final>true</final></property>\
                 <property><name>k</name><value>2</value></property>\
                 <property><name>open</name><value>1</value></property></configuration>";
    conf.add_xml("a.xml", first).unwrap();
    conf.add_xml("b.xml", &xml(&[("k", "3"), ("open", "3")])).unwrap();
    assert_eq!(conf.get_str("k").unwrap(), "1");
    assert_eq!(conf.source_of("k").unwrap(), "a.xml");
    assert_eq!(conf.get_str("open").unwrap(), "3");
    conf.set("k", "4");
    assert_eq!(conf.get_str("k").unwrap(), "4");
}

#[test]
fn hadoops_xml_forms_are_read() {
    let text = "<configuration>\n <!-- c -->\n <property name=\"short\" value=\"v\" final=\"true\"/>\n\
        <property><name> spaced\n</name><value> kept </value><description>d</description></property>\
        <property><name>cdata</name><value>a<![CDATA[<b>]]><!-- x -->c</value></property>\
        <property><name>empty</name><value/></property>\
        <property><name>no.value</name></property><property><value>no name</value></property>\
        <property><name>entity</name><value>&lt;&amp;&#65;</value></property>\
        <unrelated/></configuration>";
    let mut conf = conf();
    conf.add_xml("x", text).unwrap();
    let get = |key: &str| conf.get(key).unwrap();
    assert_eq!(get("short").as_deref(), Some("v"));
    assert_eq!(get("spaced").as_deref(), Some(" kept "));
    assert_eq!(conf.get_str("spaced").unwrap(), "kept");
    assert_eq!(get("cdata").as_deref(), Some("a<b>c"));
    assert_eq!(get("empty").as_deref(), Some(""));
    assert_eq!(get("no.value"), None);
    assert_eq!(get("entity").as_deref(), Some("<&A"));
}

#[test]
fn malformed_files_name_themselves_in_one_line() {
    for text in [
        "",
        "<configuration>",
        "<configuration><property></configuration>",
        "<conf/>",
        "\u{0}",
        "<!DOCTYPE c [<!ENTITY a \"b\">]><configuration><property><name>k</name><value>&a;</value></property></configuration>",
    ] {
        let message = conf().add_xml("/etc/bad.xml", text).unwrap_err().to_string();
        assert!(message.starts_with("/etc/bad.xml: ") && !message.contains('\n'), "{message}");
    }
}

#[test]
fn files_and_directories() {
    let dir = tempfile::tempdir().unwrap();
    let missing = Configuration::load(Some(dir.path()), &[]).unwrap_err().to_string();
    assert!(missing.contains("hbase-site.xml: cannot be opened"), "{missing}");

    let include = "<configuration xmlns:xi=\"http://www.w3.org/2001/XInclude\"><xi:include href=\"more.xml\"/>\
                   <property><name>b</name><value>site</value></property></configuration>";
    std::fs::write(dir.path().join("hbase-site.xml"), include).unwrap();
    std::fs::write(dir.path().join("more.xml"), xml(&[("a", "more"), ("b", "more")])).unwrap();
    let conf = Configuration::load(Some(dir.path()), &[("c".to_owned(), "${a}".to_owned())]).unwrap();
    assert_eq!(conf.get_str("a").unwrap(), "more");
    assert_eq!(conf.get_str("b").unwrap(), "site");
    assert_eq!(conf.get_str("c").unwrap(), "more");
    assert!(conf.source_of("a").unwrap().ends_with("more.xml"));

    std::fs::write(dir.path().join("more.xml"), include).unwrap();
    let circle = Configuration::load(Some(dir.path()), &[]).unwrap_err().to_string();
    assert!(circle.contains("includes more than"), "{circle}");
    std::fs::write(dir.path().join("hbase-site.xml"), [b'<', 0xFF]).unwrap();
    assert!(Configuration::load(Some(dir.path()), &[]).unwrap_err().to_string().contains("cannot be read"));
}

#[test]
fn references_expand_nested_repeated_and_unbound() {
    let conf = site(&[
        ("a", "x"),
        ("b", "${a}-${a}"),
        ("name", "a"),
        ("nested", "${${name}}"),
        ("unbound", "1 ${nobody} ${a} ${open"),
        ("env", "${env.EVENKEEL_NO_SUCH_VARIABLE-fallback}"),
        ("snapshot", "{snapshot.name}"),
    ]);
    assert_eq!(conf.get_str("b").unwrap(), "x-x");
    assert_eq!(conf.get_str("nested").unwrap(), "x");
    assert_eq!(conf.get_str("unbound").unwrap(), "1 ${nobody} x ${open");
    assert_eq!(conf.get_str("env").unwrap(), "fallback");
    assert_eq!(conf.get_str("snapshot").unwrap(), "{snapshot.name}");
}

#[test]
fn cyclic_and_exponential_references_are_errors() {
    let conf = site(&[("a", "${b}"), ("b", "${c}"), ("c", "1${a}"), ("self", "${self}")]);
    let message = conf.get("a").unwrap_err().to_string();
    assert_eq!(message, "a = \"${b}\" (/etc/hbase-site.xml): circular references: a -> b -> c -> a");
    assert!(conf.get("self").is_err());

    let chain: Vec<_> =
        (0..40).map(|i| (format!("k{i}"), format!("${{k{}}}${{k{}}}", i + 1, i + 1))).collect();
    let pairs: Vec<_> = chain.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert!(site(&pairs).get("k0").unwrap_err().to_string().contains("deep"));
    assert!(site(&pairs).get("k22").unwrap_err().to_string().contains("references"));
    let braces = "${".repeat(10_000) + &"}".repeat(10_000);
    assert!(site(&[("k", &braces)]).get("k").is_err());
}

#[test]
fn bad_values_name_key_value_source_and_form() {
    let conf = site(&[
        (HANDLERS, "thirty\n"),
        ("hbase.master.port", "70000"),
        ("u", "-1"),
        ("f", "abc"),
        ("t", "5 s"),
    ]);
    assert_eq!(
        conf.get_i32(HANDLERS).unwrap_err().to_string(),
        "hbase.regionserver.handler.count = \"thirty\\n\" (/etc/hbase-site.xml): expected a 32-bit integer"
    );
    assert!(conf.get_port("hbase.master.port").is_err());
    assert!(conf.get_u64("u").is_err());
    assert_eq!(conf.get_i64("u").unwrap(), -1);
    assert!(conf.get_f32("f").is_err());
    assert!(conf.get_time("t", TimeUnit::Milliseconds).is_err());
    assert_eq!(conf.get_i32("unset").unwrap_err().to_string(), "unset is not set: expected a 32-bit integer");
    assert_eq!(conf.get_i32_or("unset", 7).unwrap(), 7);
    let long = site(&[("k", &"é".repeat(500))]);
    assert!(long.get_i32("k").unwrap_err().to_string().chars().count() < 250);
    let range = site(&[("hfile.block.cache.size", "2")]).unusable("hfile.block.cache.size", "0 to 1");
    assert_eq!(range.to_string(), "hfile.block.cache.size = \"2\" (/etc/hbase-site.xml): expected 0 to 1");
}

#[test]
fn blank_is_unset_and_bad_booleans_fall_back() {
    let conf = site(&[
        (HANDLERS, " "),
        ("hbase.hregion.memstore.mslab.enabled", "yes"),
        ("b", "TRUE"),
        ("c", "False "),
    ]);
    assert_eq!(conf.get_i32(HANDLERS).unwrap(), 30);
    assert!(conf.get_bool("hbase.hregion.memstore.mslab.enabled").unwrap());
    assert!(conf.get_bool("b").unwrap());
    assert!(!conf.get_bool_or("c", true).unwrap());
    assert!(conf.get_bool("none").is_err());
    assert!(conf.get_bool_or("none", true).unwrap());
    assert_eq!(site(&[("b", "on")]).get_bool_or("b", false), Ok(false));
}

#[test]
fn older_keys_apply_where_the_current_one_is_unset() {
    let old = ("hbase.hstore.compactionThreshold", "5");
    assert_eq!(site(&[old]).get_i32("hbase.hstore.compaction.min").unwrap(), 5);
    assert_eq!(
        site(&[old, ("hbase.hstore.compaction.min", "")]).get_i32("hbase.hstore.compaction.min").unwrap(),
        5
    );
    assert_eq!(
        site(&[old, ("hbase.hstore.compaction.min", "6")]).get_i32("hbase.hstore.compaction.min").unwrap(),
        6
    );
    assert_eq!(conf().get_i32("hbase.hstore.compaction.min").unwrap(), 3);
}

#[test]
fn overlays_win_in_order_and_are_literal() {
    let mut global = site(&[("k", "global"), ("other", "g"), ("hbase.hstore.compaction.min", "4")]);
    let table = global.overlay("table t1", [("k", "table"), ("hbase.hstore.compactionThreshold", "7")]);
    let family = table.overlay_bytes("family cf", [(&b"k"[..], &b"${other}"[..]), (b"\xff", b"x")]);
    assert_eq!(global.get_str("k").unwrap(), "global");
    assert_eq!(table.get_str("k").unwrap(), "table");
    assert_eq!(family.get_str("k").unwrap(), "${other}");
    assert_eq!(family.source_of("k").unwrap(), "family cf");
    assert_eq!(family.get_str("other").unwrap(), "g");
    assert_eq!(
        family.get_i32("hbase.hstore.compaction.min").unwrap(),
        4,
        "a present name beats an older one"
    );
    global.set("other", "later");
    assert_eq!(family.get_str("other").unwrap(), "g", "a view is a snapshot");
    assert!(family.get_i32("k").unwrap_err().to_string().contains("(family cf)"));
}

#[test]
fn unknown_keys_are_listed_in_order() {
    let mut conf =
        site(&[("zz.typo", "1"), (HANDLERS, "1"), ("hbase.offheapcache.minblocksize", "1"), ("dfs.x", "1")]);
    conf.set("aa.typo", "1");
    assert_eq!(conf.unknown_keys(), ["aa.typo", "zz.typo"]);
    assert_eq!(conf.set_properties()[0], ("aa.typo", "1", "command line"));
}

#[test]
fn lists_are_trimmed() {
    let conf = site(&[("l", " a, b,,\n c \n d ,")]);
    assert_eq!(conf.get_list("l").unwrap(), ["a", "b", "c", "d"]);
    assert!(conf.get_list("none").unwrap().is_empty());
}

#[test]
fn numbers_parse_as_in_java() {
    assert_eq!(values::integer::<i32>("0x7f"), Some(127));
    assert_eq!(values::integer::<i32>("-0X10"), Some(-16));
    assert_eq!(values::integer::<i32>("+5"), Some(5));
    for bad in ["", "-", "0x", "0x+1", "1.0", "1_000", "2147483648", "0x80000000", "1L"] {
        assert_eq!(values::integer::<i32>(bad), None, "{bad}");
    }
    assert_eq!(values::integer::<u64>("0xffffffffffffffff"), Some(u64::MAX));
    assert_eq!(values::float::<f32>("1.2F"), Some(1.2));
    assert_eq!(values::float::<f64>("-.5e-1d"), Some(-0.05));
    assert_eq!(values::float::<f64>("-Infinity"), Some(f64::NEG_INFINITY));
    for bad in ["", "inf", "nan", "F", "1.2FF", "-", "0x1"] {
        assert_eq!(values::float::<f64>(bad), None, "{bad}");
    }
}

#[test]
fn sizes_and_times_parse_as_in_hadoop() {
    assert_eq!(values::size("64k"), Some(65536));
    assert_eq!(values::size("-2G"), Some(-(2 << 30)));
    assert_eq!(values::size("7"), Some(7));
    for bad in ["", "k", "64kb", "1.5g", "64é", "9223372036854775807k", "8e"] {
        assert_eq!(values::size(bad), None, "{bad}");
    }
    let ms = |text| values::time(text, TimeUnit::Milliseconds, TimeUnit::Milliseconds);
    assert_eq!(ms("250"), Some(250));
    assert_eq!(ms("2S"), Some(2000));
    assert_eq!(ms("3ms"), Some(3));
    assert_eq!(ms("1500us"), Some(1));
    assert_eq!(ms("-1500000ns"), Some(-1));
    assert_eq!(ms("1d"), Some(86_400_000));
    assert_eq!(ms("5m"), Some(300_000));
    assert_eq!(ms("9223372036854775807d"), Some(i64::MAX));
    for bad in ["", "s", "1.5s", "0x10", "10w", "ms3"] {
        assert_eq!(ms(bad), None, "{bad}");
    }
    assert_eq!(values::time("90", TimeUnit::Seconds, TimeUnit::Minutes), Some(1));
}

#[test]
fn umasks_parse_as_in_hadoop() {
    for (text, mask) in [
        ("000", 0),
        ("22", 0o022),
        ("0027", 0o027),
        ("1777", 0o777),
        ("u=rwx,g=r-x,o=", 0o027),
        ("u=rwx,go=rx", 0o022),
        ("a=rwx", 0),
        ("=r", 0o333),
    ] {
        assert_eq!(values::umask(text), Some(mask), "{text}");
    }
    for bad in ["8", "0o22", "2000", "u", "u=q", "z=r", "u=r,"] {
        assert_eq!(values::umask(bad), None, "{bad}");
    }
    let mut conf = Configuration::new();
    assert_eq!(conf.get_umask_or("k", 0o22).expect("the default"), 0o22);
    conf.set("k", " 077 ");
    assert_eq!(conf.get_umask_or("k", 0o22).expect("set"), 0o77);
    conf.set("k", "none");
    assert!(conf.get_umask_or("k", 0o22).is_err_and(|e| e.to_string().contains("umask")));
}
