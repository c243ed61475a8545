//! `/conf`: the configuration, as HBase's ConfServlet writes it.
//!
//! `format` is `xml`, which is the default, or `json`. `name` selects one key, as in Hadoop's
//! servlet. Built-in defaults are included; `${x}` in values is replaced.
//!
//! # Secrets
//! A value is masked if the key looks like that of a secret, or if the value refers to such a key.
//! The mask is HBase's. The words are HBase's and three more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use evenkeel_common::config::defaults::DEFAULTS;
use evenkeel_common::{Configuration, CurrentConfiguration};
use evenkeel_metrics::sink::json::quote;

use crate::request::Request;
use crate::response::{Response, escape_html};
use crate::routes::Page;

const MASKED: &str = "<masked>";
/// A key that contains one of these words is secret. `pass` counts only after `ssl`.
const SECRET_WORDS: [&str; 5] = ["password", "secret", "superuser", "credential", "passphrase"];

/// HBase's ConfServlet.
pub(super) struct ConfPage(pub(super) Arc<CurrentConfiguration>);

/// The settings of one response.
struct Conf(Configuration);

/// One property, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// Its key.
    pub key: String,
    /// Its value with `${x}` replaced, or a mask.
    pub value: String,
    /// Whether no later file may change it.
    pub is_final: bool,
    /// The file or other source that sets it, or `built-in default`.
    pub source: String,
}

/// Returns the properties of a configuration and the built-in defaults, by key, with secrets
/// masked.
pub fn properties(configuration: &Configuration) -> Vec<Property> {
    Conf(configuration.clone()).properties()
}

impl Page for ConfPage {
    fn respond(&self, request: &Request) -> Response {
        let conf = Conf(self.0.get());
        let write = match request.parameter("format").unwrap_or("xml") {
            "xml" => xml,
            "json" => json,
            other => return Response::error(400, &format!("Bad format: {other}")),
        };
        let Some(name) = request.parameter("name").filter(|name| !name.is_empty()) else {
            return write(&conf.properties(), false);
        };
        match conf.property(name, &conf.raw_values()) {
            Some(property) => write(&[property], true),
            None => Response::error(404, &format!("Property {name} not found")),
        }
    }
}

impl Conf {
    fn properties(&self) -> Vec<Property> {
        let raw = self.raw_values();
        let keys: BTreeSet<&str> = DEFAULTS.iter().map(|(key, _)| *key).chain(raw.keys().copied()).collect();
        keys.into_iter().filter_map(|key| self.property(key, &raw)).collect()
    }

    /// Returns the keys that are set, with their values before `${x}` is replaced.
    fn raw_values(&self) -> BTreeMap<&str, &str> {
        self.0.set_properties().into_iter().map(|(key, value, _)| (key, value)).collect()
    }

    fn property(&self, key: &str, raw: &BTreeMap<&str, &str>) -> Option<Property> {
        let source = self.0.source_of(key)?;
        let refers_to_secret = raw.get(key).is_some_and(|value| value.contains("${") && is_secret(value));
        let value = if is_secret(key) || refers_to_secret {
            MASKED.to_owned()
        } else {
            // If a value cannot be resolved, the error is shown instead.
            self.0.get(key).unwrap_or_else(|error| Some(error.to_string()))?
        };
        Some(Property { key: key.to_owned(), value, is_final: self.0.is_final(key), source })
    }
}

fn is_secret(key: &str) -> bool {
    let key = key.to_lowercase();
    let has_ssl_pass = key.split_once("ssl").is_some_and(|(_, rest)| rest.contains("pass"));
    has_ssl_pass || SECRET_WORDS.iter().any(|word| key.contains(word))
}

fn xml(properties: &[Property], _is_one: bool) -> Response {
    let mut text = "<?xml version=\"1.0\" encoding=\"UTF-8\" standalone=\"no\"?><configuration>\n".to_owned();
    for Property { key, value, is_final, source } in properties {
        let [key, value, source] = [key, value, source].map(|text| xml_text(text));
        text.push_str(&format!(
            "<property><name>{key}</name><value>{value}</value><final>{is_final}</final>\
             <source>{source}</source></property>\n"
        ));
    }
    text.push_str("</configuration>\n");
    Response::ok("text/xml;charset=utf-8", text)
}

/// Returns the text escaped, without the control characters that XML does not allow.
fn xml_text(text: &str) -> String {
    let legal = |c: &char| !c.is_control() || matches!(c, '\n' | '\t' | '\r');
    escape_html(&text.chars().filter(legal).collect::<String>())
}

fn json(properties: &[Property], is_one: bool) -> Response {
    let mut text = if is_one { "{\"property\":" } else { "{\"properties\":[" }.to_owned();
    for (number, property) in properties.iter().enumerate() {
        text.push_str(if number > 0 { "," } else { "" });
        json_property(property, &mut text);
    }
    text.push_str(if is_one { "}" } else { "]}" });
    Response::ok("application/json;charset=utf-8", text)
}

fn json_property(property: &Property, to: &mut String) {
    to.push_str("{\"key\":");
    quote(&property.key, to);
    to.push_str(",\"value\":");
    quote(&property.value, to);
    to.push_str(if property.is_final { ",\"isFinal\":true" } else { ",\"isFinal\":false" });
    to.push_str(",\"resource\":");
    quote(&property.source, to);
    to.push('}');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_secrets_are_known_by_their_words() {
        for key in
            ["hbase.Password", "a.secret.b", "hbase.superuser", "ssl.server.keystore.keypass", "x.credential"]
        {
            assert!(is_secret(key), "{key}");
        }
        for key in ["hbase.rootdir", "hbase.ssl.enabled", "bypass.ssl", "hbase.pass.through"] {
            assert!(!is_secret(key), "{key}");
        }
    }
}
