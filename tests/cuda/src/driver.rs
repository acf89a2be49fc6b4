//! What a process has of the driver: devices, contexts, memory.
//!
//! What is held is never counted along: `account` adds up what is there.

use crate::addresses::Addresses;
use crate::current::{pop, top};
use crate::packed::Pieces;
use crate::vmm::Vmm;
use crate::{CAPACITY_VARIABLE, CONTEXT_BYTES, DEVICES_VARIABLE, PIECE_BYTES};
use std::collections::BTreeMap;
use std::ffi::c_int;

/// What the driver answers.
pub(crate) type Answer = Result<(), Refused>;

/// Why a call does not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// With this CUresult.
    With(c_int),
    /// It does not come back at all.
    Never,
}

pub(crate) const INVALID_VALUE: Refused = Refused::With(1);
pub(crate) const OUT_OF_MEMORY: Refused = Refused::With(2);
pub(crate) const NOT_INITIALIZED: Refused = Refused::With(3);
pub(crate) const INVALID_DEVICE: Refused = Refused::With(101);
pub(crate) const INVALID_CONTEXT: Refused = Refused::With(201);
pub(crate) const INVALID_HANDLE: Refused = Refused::With(400);
pub(crate) const NOT_FOUND: Refused = Refused::With(500);

/// A pool grows by pieces of this size.
const POOL_PIECE_BYTES: u64 = 32 << 20;
/// What a library of GPU code or a graph takes here; the real ones differ.
const CODE_BYTES: u64 = 2 << 20;
/// Local memory for stacks of 16 KiB on an H200.
const STACK_BYTES: (u64, u64) = (16 << 10, 3960 << 20);
const STACK_DEFAULT_BYTES: u64 = 1 << 10;

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Direct,
    Array,
    Managed,
    /// Of the pool with this handle.
    Pool(u64),
    Pinned,
    Registered,
    Ipc,
    Library,
    Module,
    Graph,
}

/// Something that the program asked for.
pub(crate) struct Object {
    pub(crate) kind: Kind,
    pub(crate) device: Option<usize>,
    pub(crate) context: Option<u64>,
    /// As it was asked for.
    pub(crate) bytes: u64,
    /// What it takes of the device by itself.
    pub(crate) taken: u64,
    /// How often it was opened.
    pub(crate) uses: u64,
}

/// A context, and the pieces of memory that small allocations share.
#[derive(Default)]
pub(crate) struct Context {
    pub(crate) device: usize,
    pub(crate) pieces: Pieces,
    pub(crate) local_bytes: u64,
}

/// A device as the process sees it.
#[derive(Default)]
pub(crate) struct Device {
    pub(crate) physical: usize,
    /// The primary context, and how often it is retained.
    primary: Option<(u64, u64)>,
    default_pool: u64,
}

pub(crate) struct Pool {
    pub(crate) device: usize,
    pub(crate) reserved: u64,
    keeps: u64,
}

/// The driver in one process.
pub(crate) struct Driver {
    pub(crate) pid: u32,
    is_initialized: bool,
    /// It was initialized in the process of which this is a fork.
    is_unusable: bool,
    capacity: u64,
    pub(crate) devices: Vec<Device>,
    pub(crate) contexts: BTreeMap<u64, Context>,
    /// By address or handle.
    pub(crate) objects: BTreeMap<u64, Object>,
    pub(crate) pools: BTreeMap<u64, Pool>,
    pub(crate) vmm: Vmm,
    /// Memory of others that is open, by what their handle says.
    pub(crate) opened: BTreeMap<[u64; 8], u64>,
    addresses: Addresses,
    next_handle: u64,
    pub(crate) calls: BTreeMap<&'static str, u64>,
    pub(crate) refused: BTreeMap<(Option<usize>, &'static str), u64>,
    /// The device that the running call is about, where its arguments name one.
    pub(crate) subject: Option<usize>,
}

impl Driver {
    pub(crate) fn new() -> Self {
        Self {
            pid: std::process::id(),
            is_initialized: false,
            is_unusable: false,
            capacity: 0,
            devices: Vec::new(),
            contexts: BTreeMap::new(),
            objects: BTreeMap::new(),
            pools: BTreeMap::new(),
            vmm: Vmm::default(),
            opened: BTreeMap::new(),
            addresses: Addresses::default(),
            next_handle: 0x5555_0000_1000,
            calls: BTreeMap::new(),
            refused: BTreeMap::new(),
            subject: None,
        }
    }

    /// Counts a call, and begins anew in a fork. A fork of a process that used the driver can't use it.
    pub(crate) fn enter(&mut self, name: &'static str) {
        if self.pid != std::process::id() {
            let is_unusable = self.is_unusable || self.is_initialized;
            *self = Self::new();
            self.is_unusable = is_unusable;
        }
        *self.calls.entry(name).or_default() += 1;
        self.subject = None;
    }

    /// Whether this process initialized it.
    pub(crate) fn ready(&self) -> Answer {
        match self.is_initialized {
            true => Ok(()),
            false => Err(NOT_INITIALIZED),
        }
    }

    /// Notes that a call refused.
    pub(crate) fn refuse(&mut self, name: &'static str) {
        let device = self
            .subject
            .or_else(|| self.current().ok().map(|(_, device)| device));
        *self.refused.entry((device, name)).or_default() += 1;
    }

    pub(crate) fn initialize(&mut self) -> Answer {
        if self.is_unusable {
            return Err(NOT_INITIALIZED);
        }
        if self.is_initialized {
            return Ok(());
        }
        self.is_initialized = true;
        self.capacity = number_of(CAPACITY_VARIABLE).unwrap_or(80 << 30);
        let count = number_of(DEVICES_VARIABLE).unwrap_or(1) as usize;
        for physical in visible(count) {
            let default_pool = self.handle();
            let device = self.devices.len();
            self.pools.insert(default_pool, Pool::new(device));
            self.devices.push(Device {
                physical,
                default_pool,
                ..Device::default()
            });
        }
        Ok(())
    }

    /// A handle that nothing else has.
    pub(crate) fn handle(&mut self) -> u64 {
        self.next_handle += 0x40;
        self.next_handle
    }

    pub(crate) fn device_count(&self) -> usize {
        self.devices.len()
    }

    /// A device by its ordinal.
    pub(crate) fn device(&self, ordinal: c_int) -> Result<usize, Refused> {
        let device = usize::try_from(ordinal).map_err(|_| INVALID_DEVICE)?;
        match device < self.devices.len() {
            true => Ok(device),
            false => Err(INVALID_DEVICE),
        }
    }

    pub(crate) fn uuid(&self, device: usize) -> [u8; 16] {
        crate::uuid(self.devices[device].physical)
    }

    /// The context that is current in this thread, and its device.
    pub(crate) fn current(&self) -> Result<(u64, usize), Refused> {
        let context = top();
        let found = self.contexts.get(&context).ok_or(INVALID_CONTEXT)?;
        Ok((context, found.device))
    }

    pub(crate) fn retain_primary(&mut self, device: usize) -> Result<u64, Refused> {
        self.subject = Some(device);
        if let Some((context, uses)) = &mut self.devices[device].primary {
            *uses += 1;
            return Ok(*context);
        }
        let context = self.create_context(device)?;
        self.devices[device].primary = Some((context, 1));
        Ok(context)
    }

    pub(crate) fn release_primary(&mut self, device: usize) -> Answer {
        self.subject = Some(device);
        let (context, uses) = self.devices[device].primary.ok_or(INVALID_CONTEXT)?;
        if uses > 1 {
            self.devices[device].primary = Some((context, uses - 1));
            return Ok(());
        }
        self.reset_primary(device)
    }

    /// Ends the primary context, whoever retains it.
    pub(crate) fn reset_primary(&mut self, device: usize) -> Answer {
        self.subject = Some(device);
        match self.devices[device].primary.take() {
            Some((context, _)) => self.end_context(context),
            None => Ok(()),
        }
    }

    pub(crate) fn create_context(&mut self, device: usize) -> Result<u64, Refused> {
        self.subject = Some(device);
        self.room(device, CONTEXT_BYTES)?;
        let context = self.handle();
        let made = Context {
            device,
            ..Context::default()
        };
        self.contexts.insert(context, made);
        Ok(context)
    }

    /// Ends a context that is not the primary one.
    pub(crate) fn destroy_context(&mut self, context: u64) -> Answer {
        let is_primary = |device: &Device| device.primary.is_some_and(|(own, _)| own == context);
        if self.devices.iter().any(is_primary) {
            return Err(INVALID_CONTEXT);
        }
        self.subject = self.contexts.get(&context).map(|ended| ended.device);
        self.end_context(context)?;
        if top() == context {
            pop();
        }
        Ok(())
    }

    /// A context takes with it what was made in it; memory of pools and of cuMemCreate stays.
    fn end_context(&mut self, context: u64) -> Answer {
        self.contexts.remove(&context).ok_or(INVALID_CONTEXT)?;
        self.objects
            .retain(|_, object| object.context != Some(context));
        let objects = &self.objects;
        self.opened
            .retain(|_, address| objects.contains_key(address));
        Ok(())
    }

    pub(crate) fn knows_context(&self, context: u64) -> bool {
        self.contexts.contains_key(&context)
    }

    pub(crate) fn set_stack(&mut self, bytes: u64) -> Answer {
        let (context, device) = self.current()?;
        let (of, take) = STACK_BYTES;
        let local_bytes = match bytes > STACK_DEFAULT_BYTES {
            true => take / of * bytes,
            false => 0,
        };
        self.room(device, local_bytes)?;
        if let Some(context) = self.contexts.get_mut(&context) {
            context.local_bytes = local_bytes;
        }
        Ok(())
    }

    /// Memory of the device: in pieces of 2 MiB, or packed into one.
    pub(crate) fn direct(&mut self, bytes: u64) -> Result<u64, Refused> {
        let (context, device) = self.current()?;
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        if bytes == hanging_bytes() {
            return Err(Refused::Never);
        }
        if bytes >= PIECE_BYTES {
            let taken = bytes
                .checked_next_multiple_of(PIECE_BYTES)
                .ok_or(OUT_OF_MEMORY)?;
            self.room(device, taken)?;
            let address = self.addresses.take(taken);
            self.insert(address, Kind::Direct, bytes, taken);
            return Ok(address);
        }
        let pieces = |driver: &mut Self| {
            let context = driver.contexts.get_mut(&context)?;
            context.pieces.place(bytes)
        };
        if let Some(address) = pieces(self) {
            self.insert(address, Kind::Direct, bytes, 0);
            return Ok(address);
        }
        self.room(device, PIECE_BYTES)?;
        let base = self.addresses.take(PIECE_BYTES);
        if let Some(context) = self.contexts.get_mut(&context) {
            context.pieces.add(base);
        }
        let address = pieces(self).ok_or(OUT_OF_MEMORY)?;
        self.insert(address, Kind::Direct, bytes, 0);
        Ok(address)
    }

    pub(crate) fn array(&mut self, bytes: u64) -> Result<u64, Refused> {
        let (_, device) = self.current()?;
        let taken = bytes.next_multiple_of(PIECE_BYTES);
        self.room(device, taken)?;
        let handle = self.handle();
        self.insert(handle, Kind::Array, bytes, taken);
        Ok(handle)
    }

    /// An address for something that takes nothing of the device.
    pub(crate) fn managed(&mut self, bytes: u64) -> Result<u64, Refused> {
        self.current()?;
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        let address = self.addresses.take(bytes.next_multiple_of(PIECE_BYTES));
        self.insert(address, Kind::Managed, bytes, 0);
        Ok(address)
    }

    /// Library, module or graph: a handle, and memory that is the driver's own.
    pub(crate) fn code(&mut self, kind: Kind) -> Result<u64, Refused> {
        let handle = self.handle();
        self.insert(handle, kind, 0, CODE_BYTES);
        Ok(handle)
    }

    /// Something of the current context, or of none.
    pub(crate) fn insert(&mut self, key: u64, kind: Kind, bytes: u64, taken: u64) {
        let current = self.current().ok();
        let object = Object {
            kind,
            device: current.map(|(_, device)| device),
            context: current.map(|(context, _)| context),
            bytes,
            taken,
            uses: 1,
        };
        self.objects.insert(key, object);
    }

    pub(crate) fn remove(&mut self, key: u64, kinds: &[Kind]) -> Answer {
        match self.objects.get(&key) {
            Some(object) if kinds.contains(&object.kind) => {
                self.subject = object.device;
                self.objects.remove(&key);
                Ok(())
            }
            _ => Err(INVALID_VALUE),
        }
    }

    /// Frees memory by its address, also what came of a pool.
    pub(crate) fn free(&mut self, address: u64) -> Answer {
        if address == 0 {
            return Ok(());
        }
        let object = self.objects.get(&address).ok_or(INVALID_VALUE)?;
        if !matches!(object.kind, Kind::Direct | Kind::Managed | Kind::Pool(_)) {
            return Err(INVALID_VALUE);
        }
        self.subject = object.device;
        let Some(object) = self.objects.remove(&address) else {
            return Err(INVALID_VALUE);
        };
        let taken = match object.kind {
            Kind::Direct if object.taken == 0 => {
                let context = object.context.and_then(|key| self.contexts.get_mut(&key));
                if let Some(base) = context.and_then(|context| context.pieces.free(address)) {
                    self.addresses.give_back(base, PIECE_BYTES);
                }
                return Ok(());
            }
            Kind::Direct => object.taken,
            Kind::Pool(_) => object.bytes.next_multiple_of(512),
            _ => object.bytes.next_multiple_of(PIECE_BYTES),
        };
        self.addresses.give_back(address, taken);
        Ok(())
    }

    pub(crate) fn address(&mut self, bytes: u64) -> u64 {
        self.addresses.take(bytes)
    }

    pub(crate) fn give_back(&mut self, address: u64, bytes: u64) {
        self.addresses.give_back(address, bytes);
    }

    pub(crate) fn default_pool(&self) -> Result<u64, Refused> {
        let (_, device) = self.current()?;
        Ok(self.devices[device].default_pool)
    }

    pub(crate) fn create_pool(&mut self, device: usize) -> u64 {
        let pool = self.handle();
        self.pools.insert(pool, Pool::new(device));
        pool
    }

    pub(crate) fn destroy_pool(&mut self, pool: u64) -> Answer {
        let is_default = |device: &Device| device.default_pool == pool;
        if self.devices.iter().any(is_default) {
            return Err(INVALID_VALUE);
        }
        self.pools.remove(&pool).map(drop).ok_or(INVALID_VALUE)
    }

    /// Keeps so many bytes when others are given back.
    pub(crate) fn keep_in_pool(&mut self, pool: u64, bytes: u64) -> Answer {
        self.pools.get_mut(&pool).ok_or(INVALID_VALUE)?.keeps = bytes;
        Ok(())
    }

    pub(crate) fn alloc_from_pool(&mut self, pool: u64, bytes: u64) -> Result<u64, Refused> {
        self.current()?;
        let found = self.pools.get(&pool).ok_or(INVALID_VALUE)?;
        let (device, reserved) = (found.device, found.reserved);
        self.subject = Some(device);
        if bytes == 0 {
            return Err(INVALID_VALUE);
        }
        if bytes == hanging_bytes() {
            return Err(Refused::Never);
        }
        let needed = self.in_pool(pool).checked_add(bytes).ok_or(OUT_OF_MEMORY)?;
        if needed > reserved {
            let grown = needed
                .checked_next_multiple_of(POOL_PIECE_BYTES)
                .ok_or(OUT_OF_MEMORY)?;
            self.room(device, grown - reserved)?;
            if let Some(pool) = self.pools.get_mut(&pool) {
                pool.reserved = grown;
            }
        }
        let address = self.addresses.take(bytes.next_multiple_of(512));
        let object = Object {
            kind: Kind::Pool(pool),
            device: Some(device),
            // The end of a context does not end it.
            context: None,
            bytes,
            taken: 0,
            uses: 1,
        };
        self.objects.insert(address, object);
        Ok(address)
    }

    /// Gives back what pools keep beyond their thresholds.
    pub(crate) fn synchronize(&mut self) {
        for pool in self.pools.keys().copied().collect::<Vec<_>>() {
            let keeps = self.pools[&pool].keeps;
            self.trim(pool, keeps);
        }
    }

    pub(crate) fn trim_pool(&mut self, pool: u64, keeps: u64) -> Answer {
        self.subject = Some(self.pools.get(&pool).ok_or(INVALID_VALUE)?.device);
        self.trim(pool, keeps);
        Ok(())
    }

    fn trim(&mut self, pool: u64, keeps: u64) {
        let least = self
            .in_pool(pool)
            .max(keeps)
            .next_multiple_of(POOL_PIECE_BYTES);
        if let Some(pool) = self.pools.get_mut(&pool) {
            pool.reserved = pool.reserved.min(least);
        }
    }

    fn in_pool(&self, pool: u64) -> u64 {
        let objects = self.objects.values();
        let inside = objects.filter(|object| object.kind == Kind::Pool(pool));
        inside.map(|object| object.bytes).sum()
    }

    /// Whether so many bytes are free on a device, if pools give back what they keep.
    pub(crate) fn room(&mut self, device: usize, bytes: u64) -> Answer {
        if self.fits(device, bytes) {
            return Ok(());
        }
        for pool in self.pools.keys().copied().collect::<Vec<_>>() {
            self.trim(pool, 0);
        }
        match self.fits(device, bytes) {
            true => Ok(()),
            false => Err(OUT_OF_MEMORY),
        }
    }

    fn fits(&self, device: usize, bytes: u64) -> bool {
        let used = self.used(device);
        used.checked_add(bytes)
            .is_some_and(|sum| sum <= self.capacity)
    }

    /// Free and total memory of the current device.
    pub(crate) fn info(&self) -> Result<(u64, u64), Refused> {
        let (_, device) = self.current()?;
        Ok((self.capacity - self.used(device), self.capacity))
    }
}

impl Pool {
    fn new(device: usize) -> Self {
        Self {
            device,
            reserved: 0,
            keeps: 0,
        }
    }
}

/// An allocation of so many bytes never comes back; see `memtrace_fake_cuda_hang`.
pub(crate) static HANGING_BYTES: std::sync::atomic::AtomicU64 =
    std::sync::atomic::AtomicU64::new(0);

pub(crate) fn hanging_bytes() -> u64 {
    HANGING_BYTES.load(std::sync::atomic::Ordering::Relaxed)
}

fn number_of(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The devices that CUDA_VISIBLE_DEVICES leaves, by the machine's numbers, in its order.
fn visible(count: usize) -> Vec<usize> {
    let Ok(list) = std::env::var("CUDA_VISIBLE_DEVICES") else {
        return (0..count).collect();
    };
    let numbers = list.split(',').map_while(|word| word.trim().parse().ok());
    numbers.take_while(|number| *number < count).collect()
}
