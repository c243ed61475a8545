//! Creates the directories of new regions from a snapshot, with links to its files.
//!
//! Regions get new ids, and so new encoded names, also when a snapshot is restored to its table: a
//! log may still hold edits of the old regions, and would replay them into a region of the same
//! name. Ids keep their order, because a region that was split sorts before its daughters by id.
//!
//! - `<hfile>`: `<table>=<region>-<hfile>`, a link
//! - `<table>=<region>-<hfile>`, a link: the same link
//! - `<hfile or link>.<parent>`, a reference: `<link>.<new name of the parent>`, a reference with
//!   the same content
//!
//! The MOB region keeps its name: cells name its files with the table that wrote them.
//!
//! Each gets a back reference, references included: they may outlive their parent's link. A region
//! that was split is created only if a daughter reads its files.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use evenkeel_common::mob::{mob_family_dir, mob_region};
use evenkeel_common::{RegionInfo, Result, TableDescriptor, TableName};
use evenkeel_fs::FileSystem;
use evenkeel_protocol::pb;
use evenkeel_region::layout;
use evenkeel_region::region::write_region_info;
use evenkeel_region::store::StoreEnv;
use evenkeel_region::store_file_tracker::{ListedFile, StoreFileTracker, TrackerKind, TrackerSettings};

use super::store::{Snapshot, corrupted, region_of};
use super::verify::Entry;
use crate::links;

/// The largest reference file that is read.
const REFERENCE_BYTES_MAX: u64 = 64 << 10;

/// A region to create, and its source.
pub(super) struct NewRegion<'a> {
    /// The new region.
    pub(super) info: RegionInfo,
    from: RegionInfo,
    manifest: &'a pb::SnapshotRegionManifest,
}

/// The regions that a snapshot expands to.
pub(super) struct Layout<'a> {
    /// Regions that can be served, in the order of their keys.
    pub(super) live: Vec<NewRegion<'a>>,
    /// Regions that were split and whose files their daughters read.
    pub(super) parents: Vec<NewRegion<'a>>,
    /// The MOB region, if the snapshot has one.
    mob: Option<NewRegion<'a>>,
    /// New encoded names, by the names in the snapshot.
    names: HashMap<String, String>,
}

impl<'a> Layout<'a> {
    /// Plans the regions of a table, with ids from `first_id` on.
    pub(super) fn plan(snapshot: &'a Snapshot, table: &TableName, first_id: i64) -> Result<Self> {
        let from = snapshot.regions.iter().map(|m| Ok((region_of(m)?, m))).collect::<Result<Vec<_>>>()?;
        let is_mob = |info: &RegionInfo| info.encoded_name() == mob_region(info.table()).encoded_name();
        let (mob, from): (Vec<_>, Vec<_>) = from.into_iter().partition(|(info, _)| is_mob(info));
        let mob = mob.into_iter().next().map(|(from, manifest)| NewRegion {
            info: mob_region(table),
            from,
            manifest,
        });
        let ids: BTreeSet<i64> = from.iter().map(|(info, _)| info.region_id()).collect();
        let rank = |info: &RegionInfo| ids.range(..info.region_id()).count() as i64;
        let needed = parents_of(&from)?;
        let (mut live, mut parents, mut names) = (Vec::new(), Vec::new(), HashMap::new());
        for (from, manifest) in from {
            let is_parent = from.is_split_parent() || from.is_split();
            if is_parent && !needed.contains(from.encoded_name()) {
                continue;
            }
            let (start, end) = (from.start_key().clone(), from.end_key().clone());
            let info = RegionInfo::new(table.clone(), start, end, first_id + rank(&from));
            let info = if is_parent { info.with_flags(true, true) } else { info };
            names.insert(from.encoded_name().to_owned(), info.encoded_name().to_owned());
            let region = NewRegion { info, from, manifest };
            if is_parent { parents.push(region) } else { live.push(region) }
        }
        live.sort_by(|a: &NewRegion<'_>, b| a.info.start_key().cmp(b.info.start_key()));
        let layout = Self { live, parents, mob, names };
        layout.check_covers_all_rows()?;
        Ok(layout)
    }

    /// Checks that the regions cover every row once.
    fn check_covers_all_rows(&self) -> Result<()> {
        let keys = |at: usize| self.live.get(at).map(|r| (r.info.start_key(), r.info.end_key()));
        let ends = keys(0).is_some_and(|(start, _)| start.is_empty())
            && self.live.last().is_some_and(|last| last.info.end_key().is_empty());
        let mut borders = self.live.iter().zip(self.live.iter().skip(1));
        let borders = borders.all(|(a, b)| a.info.end_key() == b.info.start_key());
        if ends && borders {
            Ok(())
        } else {
            Err(corrupted("the snapshot's regions do not cover every row once"))
        }
    }

    /// Infos of the live regions.
    pub(super) fn live_infos(&self) -> Vec<RegionInfo> {
        self.live.iter().map(|region| region.info.clone()).collect()
    }

    /// Every region.
    pub(super) fn all(&self) -> impl Iterator<Item = &NewRegion<'a>> {
        self.parents.iter().chain(&self.live)
    }

    /// Returns regions that were split, each with the daughters that read its files, at most two.
    pub(super) fn split_parents(&self) -> Result<Vec<(RegionInfo, Vec<RegionInfo>)>> {
        let mut found = Vec::new();
        for parent in &self.parents {
            let mut daughters = Vec::new();
            for region in self.all().filter(|region| region.info != parent.info) {
                if parents_in(&region.from, region.manifest)?.contains(parent.from.encoded_name()) {
                    daughters.push(region.info.clone());
                }
            }
            daughters.sort_by(|a, b| a.start_key().cmp(b.start_key()));
            // A daughter without references is not recorded; HBase then records the other one
            // twice.
            if let [only] = &daughters[..] {
                daughters.push(only.clone());
            }
            daughters.truncate(2);
            found.push((parent.info.clone(), daughters));
        }
        Ok(found)
    }

    /// Creates the directories and the links, and lists of them where the table keeps lists.
    pub(super) fn write(&self, env: &StoreEnv, table: &TableDescriptor) -> Result<()> {
        self.write_mob_region(env)?;
        self.all().try_for_each(|region| self.write_region(env, table, region))
    }

    /// Creates links to the MOB files that the table does not have. Cells of the regions name the
    /// files themselves; the links keep them from being deleted.
    fn write_mob_region(&self, env: &StoreEnv) -> Result<()> {
        let Some(region) = &self.mob else { return Ok(()) };
        let (fs, root) = (&*env.fs, &*env.root);
        for family in &region.manifest.family_files {
            let name = String::from_utf8_lossy(&family.family_name).into_owned();
            let dir = mob_family_dir(root, region.info.table(), &name);
            fs.mkdirs(&dir)?;
            for file in &family.store_files {
                if !fs.exists(&dir.join(&file.name))? {
                    self.write_file(fs, root, region, &dir, file)?;
                }
            }
        }
        Ok(())
    }

    fn write_region(&self, env: &StoreEnv, table: &TableDescriptor, region: &NewRegion<'_>) -> Result<()> {
        let (fs, root) = (&*env.fs, &*env.root);
        let dir = layout::region_dir(root, &region.info);
        fs.delete(&dir)?;
        write_region_info(fs, &dir, &region.info)?;
        for family in table.families() {
            fs.mkdirs(&dir.join(family.name_text()))?;
        }
        for family in &region.manifest.family_files {
            let name = String::from_utf8_lossy(&family.family_name).into_owned();
            let family_dir = dir.join(&name);
            let mut listed = Vec::new();
            for file in &family.store_files {
                let name = self.write_file(fs, root, region, &family_dir, file)?;
                listed.push(ListedFile { name, bytes: 0 });
            }
            if let Some(family) = table.family(&family.family_name) {
                let kind = TrackerKind::of(&TrackerSettings::of(table, family))?;
                let (fs, clock) = (Arc::clone(&env.fs), Arc::clone(&env.clock));
                StoreFileTracker::new(fs, clock, &family_dir, kind).begin(listed)?;
            }
        }
        Ok(())
    }

    /// Creates a link or a reference, and returns its name.
    fn write_file(
        &self,
        fs: &dyn FileSystem,
        root: &Path,
        region: &NewRegion<'_>,
        family_dir: &Path,
        file: &pb::snapshot_region_manifest::StoreFile,
    ) -> Result<String> {
        let from = &region.from;
        let of = (region.info.table(), region.info.encoded_name());
        let family = family_dir.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match Entry::of(from.table(), from.encoded_name(), &file.name)? {
            Entry::File(link) => {
                links::create(fs, root, family_dir, of, &link)?;
                Ok(link.name())
            }
            Entry::Half { file: link, parent } => {
                let parent = self.names.get(&parent).unwrap_or(&parent);
                links::create_back_reference(fs, root, family, of, &link)?;
                let content = match &file.reference {
                    Some(reference) => evenkeel_protocol::with_magic(reference),
                    None => {
                        let itself = links::link_to(from.table(), from.encoded_name(), &file.name);
                        let path = links::resolve(fs, root, &itself, family)?.path;
                        fs.read_all(&path, REFERENCE_BYTES_MAX)?
                    }
                };
                let name = format!("{}.{parent}", link.name());
                fs.write_atomically(&family_dir.join(&name), &content)?;
                Ok(name)
            }
        }
    }
}

/// Returns the encoded names of the regions that any of these refers to.
fn parents_of(regions: &[(RegionInfo, &pb::SnapshotRegionManifest)]) -> Result<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for (info, manifest) in regions {
        all.extend(parents_in(info, manifest)?);
    }
    Ok(all)
}

fn parents_in(info: &RegionInfo, manifest: &pb::SnapshotRegionManifest) -> Result<BTreeSet<String>> {
    let mut parents = BTreeSet::new();
    for file in manifest.family_files.iter().flat_map(|family| &family.store_files) {
        if let Entry::Half { parent, .. } = Entry::of(info.table(), info.encoded_name(), &file.name)? {
            parents.insert(parent);
        }
    }
    Ok(parents)
}
