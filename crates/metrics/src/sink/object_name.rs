//! [`ObjectPattern`]: a JMX ObjectName, possibly with wildcards, as a parameter of `/jmx`.
//!
//! A name is `domain:key=value,key=value`. `*` and `?` in the domain and in values match as in a
//! shell. A property `*` allows further properties. Properties match in any order. Quoted values
//! are not unquoted, because no bean of this server has one.

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

/// A pattern, or a name without wildcards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectPattern {
    domain: String,
    properties: Vec<(String, String)>,
    /// Whether a name may have further properties.
    is_open: bool,
}

impl ObjectPattern {
    /// The pattern that matches every name.
    pub fn all() -> Self {
        Self { domain: "*".to_owned(), properties: Vec::new(), is_open: true }
    }

    /// Parses a pattern. The empty text matches every name. Returns `None` for a malformed
    /// ObjectName, as Java defines it.
    pub fn parse(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::all());
        }
        let (domain, list) = text.split_once(':')?;
        let mut pattern = Self { domain: domain.to_owned(), properties: Vec::new(), is_open: false };
        for property in list.split(',') {
            if property == "*" {
                // A second one is malformed.
                if std::mem::replace(&mut pattern.is_open, true) {
                    return None;
                }
                continue;
            }
            let (key, value) = property.split_once('=')?;
            let is_repeated = pattern.properties.iter().any(|(other, _)| other == key);
            if key.is_empty() || key.contains(['*', '?', ':']) || value.contains([':', '=']) || is_repeated {
                return None;
            }
            pattern.properties.push((key.to_owned(), value.to_owned()));
        }
        Some(pattern)
    }

    /// Returns true if `name`, which has no wildcards, matches.
    pub fn matches(&self, name: &str) -> bool {
        let Some((domain, list)) = name.split_once(':') else { return false };
        let has = |key: &str, value: &str| {
            let mut properties = list.split(',').filter_map(|property| property.split_once('='));
            properties.any(|(other, text)| other == key && wildcard_matches(value, text))
        };
        (self.is_open || list.split(',').count() == self.properties.len())
            && wildcard_matches(&self.domain, domain)
            && self.properties.iter().all(|(key, value)| has(key, value))
    }
}

/// Returns true if `text` matches `pattern`, in which `*` stands for any characters and `?` for
/// one. Takes at most time proportional to the product of both lengths.
pub fn wildcard_matches(pattern: &str, text: &str) -> bool {
    let (mut pattern, mut text) = (pattern.chars(), text.chars());
    // Where to continue if what follows the last `*` does not match: after one more character.
    let mut retry: Option<(std::str::Chars<'_>, std::str::Chars<'_>)> = None;
    loop {
        let (rest, mut next) = (text.clone(), pattern.clone());
        match (next.next(), text.next()) {
            (Some('*'), _) => {
                (pattern, text) = (next.clone(), rest.clone());
                retry = Some((next, rest));
            }
            (None, None) => return true,
            (Some(wanted), Some(c)) if wanted == '?' || wanted == c => pattern = next,
            _ => {
                let Some((after, from)) = retry.as_mut() else { return false };
                if from.next().is_none() {
                    return false;
                }
                (pattern, text) = (after.clone(), from.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "Hadoop:service=HBase,name=RegionServer,sub=Server";

    #[test]
    fn patterns_match_as_in_jmx() {
        let yes = [
            "",
            "*:*",
            SERVER,
            "Hadoop:sub=Server,service=HBase,name=RegionServer",
            "Hadoop:*",
            "Ha?oop:service=HBase,*",
            "Hadoop:*,sub=S*r",
            "Hadoop:service=HBase,name=Region*,sub=*",
        ];
        let no =
            ["Hadoop:service=HBase", "java.lang:*", "Hadoop:sub=IPC,*", "Hadoop:sub=Server?,*", "x:type=,*"];
        for pattern in yes {
            assert!(ObjectPattern::parse(pattern).expect(pattern).matches(SERVER), "{pattern}");
        }
        for pattern in no {
            assert!(!ObjectPattern::parse(pattern).expect(pattern).matches(SERVER), "{pattern}");
        }
    }

    /// Each was tested with stock HBase's servlet.
    #[test]
    fn malformed_names_are_those_of_java() {
        let malformed = ["nonsense", "*", "zz", "a:", "a:type=x,", "a:type,*", "a:type=x,type=y", "a:*,*"];
        for text in malformed {
            assert_eq!(ObjectPattern::parse(text), None, "{text}");
        }
    }

    #[test]
    fn wildcards_try_every_length() {
        assert!(
            wildcard_matches("a*b*c", "axbybzc") && wildcard_matches("*", "") && wildcard_matches("a**", "a")
        );
        assert!(!wildcard_matches("a*b", "axbc") && !wildcard_matches("?", "") && !wildcard_matches("", "a"));
        let stars = "*a".repeat(200);
        assert!(!wildcard_matches(&format!("{stars}b"), &"a".repeat(2_000)));
    }
}
