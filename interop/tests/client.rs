//! Every group of client checks through every connection registry, against one server.

#![forbid(unsafe_code)]

use std::sync::Mutex;

use interop::checks;

/// Groups that read or change state of the whole cluster run one at a time.
static WHOLE_CLUSTER: Mutex<()> = Mutex::new(());

fn alone(registry: &str, group: &str) {
    let _held = WHOLE_CLUSTER.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    checks(registry, &[group]);
}

macro_rules! registry {
    ($registry:ident) => {
        mod $registry {
            const NAME: &str = stringify!($registry);

            #[test]
            fn core() {
                super::checks(NAME, &["core"]);
            }

            #[test]
            fn filters() {
                super::checks(NAME, &["filters"]);
            }

            #[test]
            fn admin() {
                super::alone(NAME, "admin");
            }

            #[test]
            fn meta() {
                super::checks(NAME, &["meta"]);
            }

            #[test]
            fn codecs() {
                super::checks(NAME, &["codecs"]);
            }

            #[test]
            fn asynchronous() {
                super::checks(NAME, &["async"]);
            }

            #[test]
            fn endpoints() {
                super::checks(NAME, &["endpoints"]);
            }
        }
    };
}

/// Snapshots and cleaners, through one registry: the calls go to the master, regardless of the
/// registry.
#[test]
fn snapshots() {
    alone("zk", "snapshots");
}

registry!(zk);
registry!(rpc);
registry!(master);
