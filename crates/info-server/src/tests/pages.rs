//! The pages that every process has, over a socket.

use std::sync::{Arc, Mutex};

use evenkeel_common::{Configuration, CurrentConfiguration};
use evenkeel_metrics::{Record, Registry};
use serde_json::Value;

use super::{body_of, exchange, get, serve, status_of};
use crate::pages::{LogLevels, StandardPages};
use crate::request::Request;
use crate::response::Response;
use crate::server::{InfoServerHandle, Limits};

/// Loggers that all have one level.
struct OneLevel(Mutex<String>);

impl LogLevels for OneLevel {
    fn set_levels(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn level_of(&self, _: &str) -> String {
        self.0.lock().expect("not poisoned").clone()
    }

    fn set_level(&self, _: &str, level: &str) -> Result<(), String> {
        if level == "<x>" {
            return Err("no level".to_owned());
        }
        *self.0.lock().expect("not poisoned") = level.to_owned();
        Ok(())
    }
}

const SITE: &str = "<configuration>
<property><name>hbase.rootdir</name><value>/data/${user.name}&amp;co</value><final>true</final></property>
<property><name>my.password</name><value>hunter2</value></property>
<property><name>my.url</name><value>http://u:${my.password}@h</value></property>
<property><name>hbase.ui.logLevels.readonly.loggers</name><value>audit,kept</value></property>
</configuration>";

fn configuration(site: &str) -> Configuration {
    let properties = [("user.name".to_owned(), "me".to_owned())].into();
    let mut configuration = Configuration::with_system_properties(properties);
    configuration.add_xml("site.xml", site).expect("XML");
    configuration
}

fn start(configuration: Configuration, reasons: &'static [&'static str]) -> InfoServerHandle {
    let registry = Registry::new();
    registry.register(Arc::new(|records: &mut Vec<Record>| {
        let mut record = Record::new("Server", "regionserver", "name=RegionServer,sub=Server");
        record.gauge("regionCount", "Regions", 3);
        records.push(record);
    }));
    let pages = StandardPages {
        registry,
        hostname: "h".to_owned(),
        configuration: Arc::new(CurrentConfiguration::new(configuration)),
        log_levels: Arc::new(OneLevel(Mutex::new("INFO".to_owned()))),
        readiness: Arc::new(|| reasons.iter().map(|reason| (*reason).to_owned()).collect()),
        home: "/rs-status".to_owned(),
    };
    let routes = pages.routes().page("/rs-status", Arc::new(|_: &Request| Response::html("home")));
    serve(routes, Limits::default())
}

fn server() -> InfoServerHandle {
    start(configuration(SITE), &[])
}

#[test]
fn jmx_is_the_document_of_the_servlet() {
    let server = server();
    let response = get(&server, "/jmx?qry=Hadoop%3Aservice%3DHBase%2C*");
    assert!(response.contains("content-type: application/json;charset=utf-8\r\n"), "{response}");
    let document: Value = serde_json::from_str(body_of(&response)).expect("JSON");
    assert_eq!(document["beans"][0]["regionCount"], 3);
    let jsonp = exchange(&server, b"GET /jmx?callback=f_1&qry=no:such=bean HTTP/1.0\r\nHost: h\r\n\r\n");
    assert!(jsonp.contains("content-type: application/javascript;charset=utf-8\r\n"), "{jsonp}");
    assert_eq!(body_of(&jsonp), "f_1({\n  \"beans\": []\n});");
    for callback in ["f(", "", "a.b"] {
        assert_eq!(status_of(&get(&server, &format!("/jmx?callback={callback}"))), "500");
    }
    let (malformed, one) = (get(&server, "/jmx?qry=x"), get(&server, "/jmx?get=Hadoop:*::regionCount"));
    assert_eq!((status_of(&malformed), body_of(&malformed)), ("200", "{}"));
    assert!(body_of(&one).contains("\"regionCount\": 3") && !one.contains("tag."), "{one}");
}

#[test]
fn prometheus_is_text() {
    let request = b"GET /prometheus?description=true&qry=region HTTP/1.0\r\nHost: h\r\n\r\n";
    let response = exchange(&server(), request);
    assert!(response.contains("content-type: text/plain;charset=utf-8\r\n"), "{response}");
    let expected = "# HELP server_region_count Regions\n# TYPE server_region_count gauge\n\
                    server_region_count{context=\"regionserver\",hostname=\"h\"} 3\n";
    assert_eq!(body_of(&response), expected);
}

#[test]
fn servlets_of_metrics_can_be_left_out() {
    let mut configuration = configuration(SITE);
    configuration.set("hbase.http.metrics.servlets", "prometheus");
    let server = start(configuration, &[]);
    let statuses = ["/jmx", "/prometheus", "/metrics"].map(|path| status_of(&get(&server, path)).to_owned());
    assert_eq!(statuses, ["404", "200", "404"]);
}

#[test]
fn conf_shows_values_sources_and_no_secret() {
    let server = server();
    let json = get(&server, "/conf?format=json");
    let document: Value = serde_json::from_str(body_of(&json)).expect("JSON");
    let property = |key: &str| {
        let all = document["properties"].as_array().expect("properties");
        all.iter().find(|property| property["key"] == key).unwrap_or(&Value::Null).clone()
    };
    let rootdir = property("hbase.rootdir");
    assert_eq!((&rootdir["value"], &rootdir["isFinal"]), (&"/data/me&co".into(), &true.into()));
    assert_eq!(rootdir["resource"], "site.xml");
    assert_eq!(property("hbase.master.port")["value"], "16000");
    assert_eq!(property("hbase.wal.dir"), Value::Null, "a key without a value is not shown");
    assert_eq!(property("my.password")["value"], "<masked>");
    let xml = get(&server, "/conf");
    assert!(xml.contains("content-type: text/xml;charset=utf-8\r\n"), "{xml}");
    let line = "<property><name>hbase.rootdir</name><value>/data/me&amp;co</value><final>true</final>\
                <source>site.xml</source></property>\n";
    assert!(xml.contains(line), "{xml}");
    assert!(!xml.contains("hunter2") && !json.contains("hunter2"), "a secret is shown");
    let one = get(&server, "/conf?format=json&name=hbase.master.port");
    let expected = "{\"property\":{\"key\":\"hbase.master.port\",\"value\":\"16000\",\"isFinal\":false,\
                    \"resource\":\"built-in default\"}}";
    assert_eq!(body_of(&one), expected);
    assert_eq!(status_of(&get(&server, "/conf?name=none")), "404");
    assert_eq!(status_of(&get(&server, "/conf?format=yaml")), "400");
}

#[test]
fn levels_are_shown_and_set() {
    let server = server();
    let shown = get(&server, "/logLevel?log=a.b");
    assert!(shown.contains("<!-- OUTPUT -->Effective level: <b>INFO</b><br />\n"), "{shown}");
    let set = get(&server, "/logLevel?log=a.b&level=DEBUG");
    assert!(set.contains("<!-- OUTPUT -->Setting Level to <strong>DEBUG</strong> ...<br />\n"), "{set}");
    assert!(set.contains("Effective level: <b>DEBUG</b>"), "{set}");
    let bad = get(&server, "/logLevel?log=a%3Ci%3E&level=%3Cx%3E");
    assert!(bad.contains("Bad level : <strong>&lt;x&gt;</strong>") && !bad.contains("<x>"), "{bad}");
    assert!(!bad.contains("<i>"), "{bad}");
    assert_eq!(status_of(&get(&server, "/logLevel?log=audit.x&level=OFF")), "412");
    assert_eq!(status_of(&get(&server, "/logLevel?log=audit.x")), "200");
    let mut readonly = configuration(SITE);
    readonly.set("hbase.master.ui.readonly", "true");
    assert_eq!(status_of(&get(&start(readonly, &[]), "/logLevel")), "403");
}

#[test]
fn health_is_ok_while_readiness_lists_its_reasons() {
    let server = start(configuration(SITE), &["hbase:meta is not online", "two\nlines"]);
    assert_eq!(body_of(&get(&server, "/health")), "OK\n");
    let ready = get(&server, "/ready");
    assert_eq!((status_of(&ready), body_of(&ready)), ("503", "hbase:meta is not online\ntwo lines\n"));
    assert_eq!(body_of(&get(&self::server(), "/ready")), "OK\n");
}

#[test]
fn the_root_redirects_to_the_home_page() {
    let server = server();
    let root = get(&server, "/");
    assert!(status_of(&root) == "302" && root.contains("location: /rs-status\r\n"), "{root}");
    assert_eq!(body_of(&get(&server, "/rs-status")), "home");
}

#[test]
fn threads_are_dumped_by_name() {
    let server = server();
    for path in ["/dump", "/stacks"] {
        let response = get(&server, path);
        assert!(body_of(&response).contains(" (info):\n  State: RUNNING\n  CPU time: "), "{response}");
    }
}
