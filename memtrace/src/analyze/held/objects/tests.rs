//! Sums that are moved along are those of all that there is.

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

const COUNT: usize = 5;

fn newcomer(object: usize, process: usize) -> Newcomer {
    Newcomer {
        object,
        process,
        from: BootNs(0),
        read: BootNs(0),
        until: BootNs(0),
    }
}

fn step(objects: &mut Objects, kind: u8, place: usize, process: usize, amount: i64) {
    let object = &objects.objects[place];
    let held = Held {
        at_least: Bytes(0),
        bytes: Bytes(amount / 2),
        at_most: Bytes(amount),
    };
    let change = |is_awaited: bool, mappers: Arc<[usize]>| ObjectChange {
        object: place,
        held,
        is_awaited,
        mappers,
    };
    match kind {
        0 => {
            objects.alter(process, |mapper| mapper.given_back = amount.into());
        }
        1 => objects.change(change(false, (0..process).collect())),
        2 if !object.is_seen => objects.change(change(true, [].into())),
        3 => objects.expect(newcomer(place, process)),
        4 => objects.expect_no_more(newcomer(place, process)),
        _ => objects.set(process, amount),
    }
}

/// What is of a process by all objects.
fn recounted(objects: &Objects, process: usize) -> Mapper {
    let mapper = objects.mappers.get(process).copied().unwrap_or_default();
    let all = objects.objects.iter();
    let sum = |is_of: &dyn Fn(&Object) -> bool| -> Sum {
        let theirs = all.clone().filter(|object| is_of(object));
        theirs.map(|object| Sum::from(object.held.at_most.0)).sum()
    };
    let comes = |object: &Object| object.newcomers.contains(&process);
    let awaited = all
        .clone()
        .filter(|object| object.is_awaited && comes(object));
    let coming = objects.coming.get(&process).into_iter().flatten();
    let base = coming.map(|coming| coming.base).min();
    Mapper {
        known: sum(&|object| object.mappers.contains(&process)),
        expected: sum(&comes),
        base: base.unwrap_or(mapper.base),
        awaited: awaited.count(),
        ..mapper
    }
}

fn check(objects: &Objects) {
    let mappers: Vec<Mapper> = (0..COUNT)
        .map(|process| recounted(objects, process))
        .collect();
    for (process, recounted) in mappers.iter().enumerate() {
        let ours = objects.mappers.get(process).copied().unwrap_or_default();
        assert_eq!(format!("{ours:?}"), format!("{recounted:?}"));
    }
    for (place, object) in objects
        .objects
        .iter()
        .enumerate()
        .filter(|(_, object)| object.is_awaited)
    {
        let room = |process: &usize| -> Sum {
            let coming = objects.coming[process].iter();
            let theirs = coming.filter(|coming| coming.object == place);
            theirs
                .map(|coming| mappers[*process].since(coming.base))
                .sum()
        };
        assert_eq!(object.room, object.newcomers.iter().map(room).sum::<Sum>());
    }
    let seen = objects.objects.iter().map(Object::seen);
    assert_eq!(objects.seen, seen.fold(Held::default(), Held::plus));
    assert_eq!(
        objects.awaited,
        objects.objects.iter().map(Object::awaited).sum::<Sum>()
    );
    assert_eq!(objects.room, mappers.iter().map(Mapper::room).sum::<Sum>());
    assert_eq!(
        objects.excess,
        mappers.iter().map(Mapper::excess).sum::<Sum>()
    );
    let most = mappers.iter().map(|mapper| mapper.shmem).max();
    assert_eq!(Some(Sum::from(objects.shmem.now())), most);
    let held = objects.held();
    assert!(held.at_least <= held.bytes && held.bytes <= held.at_most);
}

proptest! {
    #[test]
    fn whatever_happens_sums_are_those_of_all_objects_and_processes(
        steps in vec((0_u8..8, 0..COUNT, 0..COUNT, 0_i64..1_000), 1..200)
    ) {
        let mut objects = Objects {
            objects: vec![Object::default(); COUNT],
            ..Objects::default()
        };
        for (kind, place, process, amount) in steps {
            step(&mut objects, kind, place, process, amount);
            check(&objects);
        }
    }
}

#[test]
fn amounts_that_no_machine_has_are_added_up() {
    let mut objects = Objects {
        objects: vec![Object::default(); 3_000],
        ..Objects::default()
    };
    let held = Held::exact(1 << 53);
    for object in 0..3_000 {
        objects.expect(newcomer(object, object % 2));
        objects.change(ObjectChange {
            object,
            held,
            is_awaited: false,
            mappers: [0, 1].into(),
        });
    }
    for round in 0..3_000 {
        objects.set(0, (1 << 53) * (round % 2));
    }
    assert_eq!(objects.held().at_most, Bytes(i64::MAX));
}
