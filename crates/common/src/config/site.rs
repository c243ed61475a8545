//! The XML format of a site file, as Hadoop reads it:
//!
//! ```xml
//! <configuration>
//!   <property><name>key</name><value>text</value><final>true</final></property>
//!   <property name="key" value="text" final="true"/>
//!   <xi:include href="other.xml"/>
//! </configuration>
//! ```
//!
//! Names are trimmed, values are not. A property without a name or without a value is skipped;
//! other elements of a property (`description`, `source`) are ignored. Document type declarations
//! are rejected, so entities cannot be expanded.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use roxmltree::{Document, Node};

use super::{ConfigError, Result};

/// The largest file that is accepted, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// How deep includes may be nested.
const INCLUDE_DEPTH_MAX: usize = 8;

/// One property, in the order of the file.
pub(super) struct SiteProperty {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) source: Arc<str>,
    pub(super) is_final: bool,
}

/// The properties of a file.
pub(super) fn read_file(path: &Path) -> Result<Vec<SiteProperty>> {
    let mut properties = Vec::new();
    read_into(path, 0, &mut properties)?;
    Ok(properties)
}

/// The properties of a text; `path` names it in errors, and its includes are relative to `path`.
pub(super) fn parse(text: &str, path: &Path) -> Result<Vec<SiteProperty>> {
    let mut properties = Vec::new();
    parse_into(text, path, 0, &mut properties)?;
    Ok(properties)
}

fn file_error(path: &Path, reason: impl ToString) -> ConfigError {
    ConfigError::File { path: path.display().to_string(), reason: reason.to_string() }
}

fn read_into(path: &Path, depth: usize, properties: &mut Vec<SiteProperty>) -> Result<()> {
    let file = fs::File::open(path).map_err(|e| file_error(path, format!("cannot be opened: {e}")))?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|e| file_error(path, format!("cannot be read: {e}")))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(file_error(path, format!("larger than {FILE_BYTES_MAX} bytes")));
    }
    parse_into(&text, path, depth, properties)
}

fn parse_into(text: &str, path: &Path, depth: usize, properties: &mut Vec<SiteProperty>) -> Result<()> {
    let document =
        Document::parse(text).map_err(|e| file_error(path, format!("not well-formed XML: {e}")))?;
    let root = document.root_element();
    if root.tag_name().name() != "configuration" {
        let found = root.tag_name().name();
        return Err(file_error(path, format!("expected a <configuration> document, found <{found}>")));
    }
    let source: Arc<str> = path.display().to_string().into();
    let mut reader = SiteReader { path, source, depth, properties };
    reader.configuration(root)
}

struct SiteReader<'a> {
    path: &'a Path,
    source: Arc<str>,
    depth: usize,
    properties: &'a mut Vec<SiteProperty>,
}

impl SiteReader<'_> {
    fn configuration(&mut self, parent: Node<'_, '_>) -> Result<()> {
        for node in parent.children().filter(Node::is_element) {
            match node.tag_name().name() {
                "property" => self.properties.extend(property(node, &self.source)),
                "include" => self.include(node)?,
                other => tracing::debug!(file = %self.source, element = other, "not a property, skipped"),
            }
        }
        Ok(())
    }

    fn include(&mut self, node: Node<'_, '_>) -> Result<()> {
        if self.depth >= INCLUDE_DEPTH_MAX {
            return Err(file_error(self.path, format!("includes more than {INCLUDE_DEPTH_MAX} deep")));
        }
        let Some(href) = node.attribute("href") else {
            return Err(file_error(self.path, "<include> without href"));
        };
        let target = href.strip_prefix("file://").unwrap_or(href);
        let directory = self.path.parent().unwrap_or_else(|| Path::new(""));
        read_into(&directory.join(target), self.depth + 1, self.properties)
    }
}

fn property(node: Node<'_, '_>, source: &Arc<str>) -> Option<SiteProperty> {
    let part = |tag: &str| {
        let child = node.children().rfind(|child| child.has_tag_name(tag));
        child.map(text_of).or_else(|| node.attribute(tag).map(str::to_owned))
    };
    let name = part("name")?.trim().to_owned();
    let value = part("value")?;
    let is_final = part("final").is_some_and(|text| text.trim() == "true");
    (!name.is_empty()).then(|| SiteProperty { name, value, source: source.clone(), is_final })
}

/// All text directly in an element: comments and CDATA divide it into several nodes.
fn text_of(node: Node<'_, '_>) -> String {
    node.children().filter(Node::is_text).filter_map(|child| child.text()).collect()
}
