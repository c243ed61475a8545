//! Jars and classes: fetched by Maven and compiled by `javac`, once, under a file lock.
//!
//! `work/lib` has the client, the tools and the stock server (in one folder, because
//! PerformanceEvaluation needs the server's jars on the client's class path), `work/lib-shell` the
//! shell's further jars, `work/classes` our mains. Beside each folder is a stamp with the hash of
//! its inputs. `work/foreign-ARTIFACT-VERSION` and the same name with `-classes` are the same for a
//! client or server of another version or make. A folder is filled under a temporary name and
//! renamed, so a killed run leaves no partial folder. `work/shared-classes` is made from the jars
//! (`crate::server::shared_classes`).

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, File};
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::{home, work};

/// The class path of our mains and of every Java client: all jars, then our classes and resources.
///
/// # Errors
/// If JDK or Maven is missing or fails; the message names it and has its output.
pub fn client_class_path() -> Result<String, String> {
    prepared()?;
    let parts = [work().join("lib").join("*"), work().join("classes"), home().join("src/main/resources")];
    Ok(join(&parts))
}

/// The class path of a stock server: the jars, without ours, and its configuration folder. No jar
/// has a file of such a folder, so the order is free; see `crate::server::shared_classes`.
///
/// # Errors
/// As [`client_class_path`].
pub fn server_class_path(conf: &Path) -> Result<String, String> {
    prepared()?;
    Ok(join(&[work().join("lib").join("*"), conf.to_owned()]))
}

/// The class path of the HBase shell.
///
/// JRuby has its own joni and jcodings, which conflict with HBase's.
///
/// # Errors
/// As [`client_class_path`].
pub fn shell_class_path(conf: &Path) -> Result<String, String> {
    prepared()?;
    let mut parts = vec![conf.to_owned(), home().join("src/main/resources"), home().join("shell/overlay")];
    let mut jars: Vec<PathBuf> = list(&work().join("lib"))?;
    jars.retain(|jar| {
        let name = jar.file_name().unwrap_or_default().to_string_lossy();
        !name.starts_with("joni-") && !name.starts_with("jcodings-")
    });
    parts.append(&mut jars);
    parts.push(work().join("lib-shell").join("*"));
    Ok(join(&parts))
}

/// A client (or server) of another version or make, by its Maven coordinates.
#[derive(Clone, Copy, Debug)]
pub struct ForeignClient {
    /// Its Maven group.
    pub group: &'static str,
    /// Its Maven artifact.
    pub artifact: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The folders under `foreign` of the programs that run with it.
    pub sources: &'static [&'static str],
}

impl ForeignClient {
    /// The class path of its programs: their classes, then its jars.
    ///
    /// # Errors
    /// As [`client_class_path`].
    pub fn class_path(&self) -> Result<String, String> {
        let _lock = lock()?;
        let pom = home().join("foreign/pom.xml");
        let jars = format!("foreign-{}-{}", self.artifact, self.version);
        fill(&jars, std::slice::from_ref(&pom), |to| self.copy_jars(&pom, to))?;
        let mut sources = Vec::new();
        for folder in self.sources {
            sources.extend(list(&home().join("foreign").join(folder))?);
        }
        sources.sort();
        let classes = format!("{jars}-classes");
        let class_path = work().join(&jars).join("*");
        fill(&classes, &sources, |to| compile(&sources, &class_path, to))?;
        Ok(join(&[work().join(classes), class_path]))
    }

    fn copy_jars(&self, pom: &Path, to: &Path) -> Result<(), String> {
        let of = |key: &str, value: &str| format!("-Dforeign.{key}={value}");
        let coordinates =
            [of("group", self.group), of("artifact", self.artifact), of("version", self.version)];
        copy_jars(pom, &coordinates, to)
    }
}

/// The `java` of `JAVA_HOME`, or else of the path.
pub fn java_command() -> PathBuf {
    jdk_tool("java")
}

/// The flags that bin/hbase passes to a JVM of version 11 and later, without those for memory.
pub fn jvm_flags() -> Vec<String> {
    let opens = "java.nio sun.nio.ch java.lang jdk.internal.ref java.lang.reflect java.util java.util.concurrent java.net java.io";
    let exports = [
        "java.base/jdk.internal.misc",
        "java.security.jgss/sun.security.krb5",
        "java.base/sun.net.dns",
        "java.base/sun.net.util",
    ];
    let mut flags: Vec<String> = vec![
        "-Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true".into(),
        "-Djava.net.preferIPv4Stack=true".into(),
        "-Duser.timezone=UTC".into(),
        "--add-modules".into(),
        "jdk.unsupported".into(),
    ];
    flags.extend(
        opens
            .split(' ')
            .flat_map(|package| ["--add-opens".into(), format!("java.base/{package}=ALL-UNNAMED")]),
    );
    flags.extend(
        exports.iter().flat_map(|package| ["--add-exports".into(), format!("{package}=ALL-UNNAMED")]),
    );
    flags
}

fn prepared() -> Result<(), String> {
    static DONE: OnceLock<Result<(), String>> = OnceLock::new();
    DONE.get_or_init(prepare).clone()
}

fn prepare() -> Result<(), String> {
    let _lock = lock()?;
    fill("lib", &[home().join("pom.xml")], |to| copy_jars(&home().join("pom.xml"), &[], to))?;
    let shell = home().join("shell/pom.xml");
    fill("lib-shell", std::slice::from_ref(&shell), |to| copy_jars(&shell, &[], to))?;
    let mut sources = files_below(home().join("src/main/java"))?;
    sources.sort();
    let mut made_from = sources.clone();
    made_from.push(home().join("pom.xml"));
    fill("classes", &made_from, |to| compile(&sources, &work().join("lib").join("*"), to))
}

/// Fills `work/NAME`, which is made from the jars of `work/lib`, and returns it. Others wait
/// meanwhile.
pub(crate) fn fill_from_jars(
    name: &str,
    make: impl Fn(&Path) -> Result<(), String>,
) -> Result<PathBuf, String> {
    prepared()?;
    let _lock = lock()?;
    fill(name, &[work().join("lib.stamp")], make)?;
    Ok(work().join(name))
}

/// Locks `work` against other processes, until the file is dropped.
fn lock() -> Result<File, String> {
    fs::create_dir_all(work()).map_err(|e| format!("cannot make {}: {e}", work().display()))?;
    let lock = File::create(work().join("lock")).map_err(|e| format!("cannot open the lock: {e}"))?;
    lock.lock().map_err(|e| format!("cannot lock: {e}"))?;
    Ok(lock)
}

/// Rebuilds `work/NAME` unless its stamp has the hash of these files.
fn fill(name: &str, made_from: &[PathBuf], make: impl Fn(&Path) -> Result<(), String>) -> Result<(), String> {
    let mut hasher = DefaultHasher::new();
    for file in made_from {
        fs::read(file).map_err(|e| format!("cannot read {}: {e}", file.display()))?.hash(&mut hasher);
    }
    let hash = format!("{:016x}", hasher.finish());
    let (folder, stamp) = (work().join(name), work().join(format!("{name}.stamp")));
    if folder.is_dir() && fs::read_to_string(&stamp).is_ok_and(|old| old == hash) {
        return Ok(());
    }
    let fresh = work().join(format!("{name}.new"));
    for old in [&fresh, &folder] {
        if old.exists() {
            fs::remove_dir_all(old).map_err(|e| format!("cannot remove {}: {e}", old.display()))?;
        }
    }
    fs::create_dir_all(&fresh).map_err(|e| format!("cannot make {}: {e}", fresh.display()))?;
    make(&fresh)?;
    fs::rename(&fresh, &folder).map_err(|e| format!("cannot rename {}: {e}", fresh.display()))?;
    fs::write(&stamp, hash).map_err(|e| format!("cannot write {}: {e}", stamp.display()))
}

fn copy_jars(pom: &Path, properties: &[String], to: &Path) -> Result<(), String> {
    let mut maven = Command::new("mvn");
    maven.args(["-B", "-q", "-f"]).arg(pom).arg("dependency:copy-dependencies").arg("-DincludeScope=runtime");
    maven.arg(format!("-DoutputDirectory={}", to.display())).args(properties);
    tool(maven, "Maven (mvn)")
}

fn compile(sources: &[PathBuf], class_path: &Path, to: &Path) -> Result<(), String> {
    let mut javac = Command::new(jdk_tool("javac"));
    javac.args(["--release", "17", "-nowarn", "-proc:none", "-encoding", "UTF-8", "-d"]).arg(to);
    javac.arg("-cp").arg(class_path).args(sources);
    tool(javac, "a JDK 17 or later (javac)")
}

/// Runs a tool. An error has its output.
pub(crate) fn tool(mut command: Command, what: &str) -> Result<(), String> {
    let output =
        command.output().map_err(|e| format!("{what} is needed on the path, or in JAVA_HOME: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Err(format!("{what} failed with {}:\n{out}{err}", output.status))
}

fn jdk_tool(name: &str) -> PathBuf {
    std::env::var_os("JAVA_HOME").map_or_else(|| name.into(), |home| Path::new(&home).join("bin").join(name))
}

fn list(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("cannot list {}: {e}", folder.display()))?;
    Ok(entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect())
}

/// The files in this folder and in the folders below it.
fn files_below(folder: PathBuf) -> Result<Vec<PathBuf>, String> {
    let (mut files, mut folders) = (Vec::new(), vec![folder]);
    while let Some(folder) = folders.pop() {
        for path in list(&folder)? {
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    Ok(files)
}

fn join(parts: &[PathBuf]) -> String {
    parts.iter().map(|part| part.display().to_string()).collect::<Vec<_>>().join(":")
}
