//! Names of files in a family's directory.
//!
//! ```text
//! hfile     = hex+ [ _SeqId_ number _ | _del ]
//! link      = [ namespace = ] table = encoded region - hfile          an empty file
//! reference = ( hfile | link ) . encoded parent region
//! ```

#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

use std::path::PathBuf;

use evenkeel_common::TableName;

/// The kind of a file, parsed from its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) enum FileName {
    /// A file with data.
    HFile {
        /// The sequence id that a bulk load assigned.
        bulk_seq_id: Option<u64>,
    },
    /// A pointer to a file elsewhere.
    Link(Link),
    /// Half of a file of another region of the table.
    Reference {
        /// The file in that region's family directory.
        file: Box<FileName>,
        /// Its name.
        file_name: String,
        /// The encoded name of that region.
        parent: String,
    },
}

/// The target of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct Link {
    pub table: TableName,
    pub region: String,
    pub file: String,
}

impl FileName {
    /// Parses a name; `None` if it is not the name of a store file.
    pub(in crate::store) fn parse(name: &str) -> Option<Self> {
        if let Some(plain) = parse_plain(name) {
            return Some(plain);
        }
        let (file_name, parent) = name.rsplit_once('.')?;
        let file = parse_plain(file_name)?;
        let is_region = !parent.is_empty() && parent.bytes().all(|b| b.is_ascii_alphanumeric());
        is_region.then(|| Self::Reference {
            file: Box::new(file),
            file_name: file_name.into(),
            parent: parent.into(),
        })
    }
}

fn parse_plain(name: &str) -> Option<FileName> {
    parse_hfile(name).or_else(|| parse_link(name).map(FileName::Link))
}

fn parse_hfile(name: &str) -> Option<FileName> {
    let hex = name.find(|c: char| !matches!(c, '0'..='9' | 'a'..='f')).unwrap_or(name.len());
    let (hex, rest) = name.split_at(hex);
    if hex.is_empty() {
        return None;
    }
    let bulk_seq_id = match rest {
        "" | "_del" => None,
        _ => Some(rest.strip_prefix("_SeqId_")?.strip_suffix('_')?.parse().ok()?),
    };
    Some(FileName::HFile { bulk_seq_id })
}

fn parse_link(name: &str) -> Option<Link> {
    let (table, rest) = name.rsplit_once('=')?;
    let (region, file) = rest.split_once('-')?;
    parse_hfile(file)?;
    let table = table.replacen('=', ":", 1).parse().ok()?;
    let is_region = !region.is_empty() && region.bytes().all(|b| b.is_ascii_alphanumeric());
    is_region.then(|| Link { table, region: region.into(), file: file.into() })
}

impl Link {
    /// Returns where the file may be, below the root directory, in lookup order.
    pub(in crate::store) fn locations(&self, family: &str) -> [PathBuf; 4] {
        ["data", ".tmp/data", "mobdir/data", "archive/data"].map(|dir| {
            let table = PathBuf::from(dir).join(self.table.namespace()).join(self.table.qualifier());
            table.join(&self.region).join(family).join(&self.file)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hfiles() {
        assert_eq!(FileName::parse("0af9"), Some(FileName::HFile { bulk_seq_id: None }));
        assert_eq!(FileName::parse("0af9_SeqId_17_"), Some(FileName::HFile { bulk_seq_id: Some(17) }));
        assert_eq!(FileName::parse("0af9_del"), Some(FileName::HFile { bulk_seq_id: None }));
        for bad in
            ["", "0AF9", "xyz", "0af9_SeqId_17", "0af9_SeqId__", "_SeqId_1_", ".filelist", "0af9.tmp-1"]
        {
            assert_eq!(FileName::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_of_links_and_references() {
        let Some(FileName::Link(link)) = FileName::parse("ns=t=0123ab-00ff") else { panic!("a link") };
        assert_eq!(
            (link.table.to_string().as_str(), &link.region[..], &link.file[..]),
            ("ns:t", "0123ab", "00ff")
        );
        let paths = link.locations("f");
        assert_eq!(paths[0], PathBuf::from("data/ns/t/0123ab/f/00ff"));
        assert_eq!(paths[3], PathBuf::from("archive/data/ns/t/0123ab/f/00ff"));

        let Some(FileName::Reference { file_name, parent, .. }) = FileName::parse("00ff.0123ab") else {
            panic!("a reference")
        };
        assert_eq!((&file_name[..], &parent[..]), ("00ff", "0123ab"));
        let of_link = FileName::parse("t=0123ab-00ff.4567cd");
        assert!(
            matches!(of_link, Some(FileName::Reference { file, .. }) if matches!(*file, FileName::Link(_)))
        );
    }
}
