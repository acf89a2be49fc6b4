//! Stand-ins until the procfs and cgroup collectors are merged.
#![allow(missing_docs)]
pub mod cgroup {
    #[derive(Default)]
    pub struct CgroupPaths;
    impl CgroupPaths {
        pub fn resolve(&mut self, _id: u64) -> Option<String> {
            None
        }
    }
}
