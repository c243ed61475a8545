//! [`Beans`]: the numbers of `/jmx` by bean and name.

use std::collections::HashMap;

use serde_json::Value;

use crate::ErrorText;

/// The prefix of the names of a RegionServer's beans.
const PREFIX: &str = "Hadoop:service=HBase,name=";

/// The beans of a server, by names without the prefix: `RegionServer,sub=Server`.
#[derive(Clone, Debug, Default)]
pub struct Beans(HashMap<String, Bean>);

/// The attributes of a bean.
#[derive(Clone, Debug, Default)]
pub struct Bean(serde_json::Map<String, Value>);

impl Beans {
    /// Parses the document of `/jmx`.
    ///
    /// # Errors
    /// If it is not such a document.
    pub fn parse(document: &[u8]) -> Result<Self, ErrorText> {
        let mut document: Value =
            serde_json::from_slice(document).map_err(|error| format!("/jmx is not JSON: {error}"))?;
        let Some(Value::Array(beans)) = document.get_mut("beans").map(Value::take) else {
            return Err("/jmx has no beans".to_owned());
        };
        let named = beans.into_iter().filter_map(|bean| match bean {
            Value::Object(attributes) => {
                let name = attributes.get("name")?.as_str()?.strip_prefix(PREFIX)?.to_owned();
                Some((name, Bean(attributes)))
            }
            _ => None,
        });
        Ok(Self(named.collect()))
    }

    /// Returns a bean of the RegionServer by its `sub`; an empty one if the server has none.
    pub fn sub(&self, sub: &str) -> Bean {
        self.0.get(&format!("RegionServer,sub={sub}")).cloned().unwrap_or_default()
    }

    /// Returns the bean of the process.
    pub fn process(&self) -> Bean {
        self.0.get("JvmMetrics").cloned().unwrap_or_default()
    }

    /// Returns true if there are no beans, as while a server starts.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Bean {
    /// Returns a number; 0 if there is none with this name.
    pub fn number(&self, name: &str) -> f64 {
        self.0.get(name).and_then(Value::as_f64).unwrap_or_default()
    }

    /// Returns a text; empty if there is none with this name.
    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns all numbers, by name.
    pub fn numbers(&self) -> impl Iterator<Item = (&str, f64)> {
        self.0.iter().filter_map(|(name, value)| Some((name.as_str(), value.as_f64()?)))
    }
}
