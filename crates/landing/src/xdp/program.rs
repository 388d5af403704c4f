//! The XDP program: about forty instructions, assembled here for one address.
//!
//! ```text
//!   frame ─▶ UDP to our address and port, whole, no IP options? ──no──▶ the kernel's stack
//!               │ yes
//!               ▼
//!            worker = partition mod owners      partition: u16 at byte 4 of the payload
//!               │                               0xffff: the queue's own, or a random one
//!               ▼
//!            socket map [queue * workers + worker] ──none there──▶ the kernel's stack
//! ```
//!
//! The program is part of this source and needs no BPF compiler at build time: see decision 0024.

use std::net::{IpAddr, SocketAddr};

use super::headers::Layout;
use crate::steer::{ANY_PARTITION, PARTITION_OFFSET_BYTES};

/// One instruction in the kernel's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(super) struct Instruction {
    operation: u8,
    /// Source register in the high half, target register in the low one.
    registers: u8,
    offset: i16,
    value: i32,
}

const _: () = assert!(size_of::<Instruction>() == 8);

/// The parameters of the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steering {
    pub(super) address: SocketAddr,
    /// Workers that have a socket on each queue.
    pub(super) worker_count: u16,
    /// Datagrams are steered to the first so many.
    pub(super) owner_count: u16,
    pub(super) queue_count: u32,
    /// The descriptor of the map of sockets.
    pub(super) map: i32,
}

// Registers: R0 results, R1 to R5 arguments (lost in calls), R6 to R9 kept.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;
/// The context.
const R6: u8 = 6;
/// The worker.
const R7: u8 = 7;
/// The queue, then the place in the map.
const R8: u8 = 8;

// Offsets in the context, `struct xdp_md`.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const QUEUE: i16 = 16;

const XDP_PASS: i32 = 2;
const CALL_RANDOM: i32 = 7;
const CALL_REDIRECT_MAP: i32 = 51;

// Operations.
const LOAD_U32: u8 = 0x61;
const LOAD_U16: u8 = 0x69;
const LOAD_U8: u8 = 0x71;
const LOAD_IMMEDIATE_U64: u8 = 0x18;
const PSEUDO_MAP: u8 = 1;
const MOVE: u8 = 0xb7;
const MOVE_REGISTER: u8 = 0xbf;
const ADD: u8 = 0x07;
const ADD_REGISTER: u8 = 0x0f;
const MULTIPLY: u8 = 0x27;
const AND: u8 = 0x57;
const MODULO: u8 = 0x97;
const TO_LITTLE_ENDIAN: u8 = 0xd4;
const TO_BIG_ENDIAN: u8 = 0xdc;
const JUMP: u8 = 0x05;
const JUMP_IF_GREATER_REGISTER: u8 = 0x2d;
const JUMP_IF_LESS: u8 = 0xa5;
const JUMP_IF_NOT_EQUAL: u8 = 0x55;
/// Compares the low 32 bits.
const JUMP_IF_NOT_EQUAL_U32: u8 = 0x56;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// The target of a jump, until all places are known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    Pass,
    Redirect,
    Named,
}

#[derive(Default)]
struct Assembler {
    instructions: Vec<Instruction>,
    /// Jumps by their place.
    jumps: Vec<(usize, Label)>,
    labels: Vec<(Label, usize)>,
}

impl Assembler {
    fn put(&mut self, operation: u8, target: u8, source: u8, offset: i16, value: i32) {
        let registers = source << 4 | target;
        self.instructions.push(Instruction { operation, registers, offset, value });
    }

    fn load(&mut self, operation: u8, target: u8, source: u8, offset: usize) {
        self.put(operation, target, source, offset as i16, 0);
    }

    fn compute(&mut self, operation: u8, target: u8, value: i32) {
        self.put(operation, target, 0, 0, value);
    }

    fn jump(&mut self, operation: u8, target: u8, source: u8, value: i32, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.put(operation, target, source, 0, value);
    }

    /// Passes the frame on to the stack unless a field of it (in R2) has that value.
    fn require(&mut self, load: u8, at: usize, value: u32) {
        self.load(load, R4, R2, at);
        self.jump(JUMP_IF_NOT_EQUAL_U32, R4, 0, value as i32, Label::Pass);
    }

    /// Jumps to a label unless the frame (in R2 to R3) has that many bytes.
    fn require_bytes(&mut self, count: usize, otherwise: Label) {
        self.put(MOVE_REGISTER, R4, R2, 0, 0);
        self.compute(ADD, R4, count as i32);
        self.jump(JUMP_IF_GREATER_REGISTER, R4, R3, 0, otherwise);
    }

    fn label(&mut self, label: Label) {
        self.labels.push((label, self.instructions.len()));
    }

    fn finish(mut self) -> Vec<Instruction> {
        for (place, label) in self.jumps {
            let target = self.labels.iter().find(|(known, _)| *known == label);
            let (_, target) = target.expect("each label has a place");
            // A jump counts from the instruction after it.
            self.instructions[place].offset = (target - place - 1) as i16;
        }
        self.instructions
    }
}

/// The program.
pub(super) fn program(steering: &Steering) -> Vec<Instruction> {
    let layout = Layout::of(steering.address);
    let [workers, owners] = [steering.worker_count, steering.owner_count].map(i32::from);
    let mut code = Assembler::default();
    // The context survives calls in R6; the frame lies from R2 to R3.
    code.put(MOVE_REGISTER, R6, R1, 0, 0);
    code.put(LOAD_U32, R2, R1, DATA, 0);
    code.put(LOAD_U32, R3, R1, DATA_END, 0);
    code.put(LOAD_U32, R8, R1, QUEUE, 0);
    code.require_bytes(layout.payload_at(), Label::Pass);
    is_ours(&mut code, layout, steering.address);
    owner(&mut code, layout, steering);
    // Picks the worker; a partition's owner is partition mod owners.
    code.label(Label::Named);
    code.compute(MODULO, R7, owners);
    code.label(Label::Redirect);
    // Each queue has a socket of each worker.
    code.compute(MULTIPLY, R8, workers);
    code.put(ADD_REGISTER, R8, R7, 0, 0);
    // return redirect_map(map, place, XDP_PASS if no socket is there)
    code.put(LOAD_IMMEDIATE_U64, R1, PSEUDO_MAP, 0, steering.map);
    code.put(0, 0, 0, 0, 0);
    code.put(MOVE_REGISTER, R2, R8, 0, 0);
    code.compute(MOVE, R3, XDP_PASS);
    code.put(CALL, 0, 0, 0, CALL_REDIRECT_MAP);
    code.put(EXIT, 0, 0, 0, 0);
    // return XDP_PASS
    code.label(Label::Pass);
    code.compute(MOVE, R0, XDP_PASS);
    code.put(EXIT, 0, 0, 0, 0);
    code.finish()
}

/// Passes on everything but whole datagrams to our address and port.
fn is_ours(code: &mut Assembler, layout: Layout, address: SocketAddr) {
    let half = |bytes: [u8; 2]| u32::from(u16::from_ne_bytes(bytes));
    code.require(LOAD_U16, 12, half(layout.ether_type));
    code.require(LOAD_U8, layout.protocol_at, 17);
    let octets = match address.ip() {
        IpAddr::V4(ip) => {
            // A header without options, and no fragment: neither "more" nor an offset.
            code.require(LOAD_U8, 14, 0x45);
            code.load(LOAD_U16, R4, R2, 20);
            code.compute(AND, R4, half([0x3f, 0xff]) as i32);
            code.jump(JUMP_IF_NOT_EQUAL, R4, 0, 0, Label::Pass);
            ip.octets().to_vec()
        }
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let target_at = layout.addresses_at + layout.address_bytes;
    for (index, word) in octets.as_chunks::<4>().0.iter().enumerate() {
        code.require(LOAD_U32, target_at + 4 * index, u32::from_ne_bytes(*word));
    }
    code.require(LOAD_U16, layout.udp_at + 2, half(address.port().to_be_bytes()));
}

/// Sets R7 to the partition or its substitute. A datagram that is too short for one goes to worker
/// 0, as it does in a group of the kernel's sockets.
fn owner(code: &mut Assembler, layout: Layout, steering: &Steering) {
    let partition_end = PARTITION_OFFSET_BYTES + 2;
    code.compute(MOVE, R7, 0);
    // The length that UDP states: short frames are padded.
    code.load(LOAD_U16, R4, R2, layout.udp_at + 4);
    code.compute(TO_BIG_ENDIAN, R4, 16);
    code.jump(JUMP_IF_LESS, R4, 0, 8 + partition_end as i32, Label::Redirect);
    code.require_bytes(layout.payload_at() + partition_end, Label::Redirect);
    code.load(LOAD_U16, R7, R2, layout.payload_at() + PARTITION_OFFSET_BYTES);
    code.compute(TO_LITTLE_ENDIAN, R7, 16);
    code.jump(JUMP_IF_NOT_EQUAL, R7, 0, i32::from(ANY_PARTITION), Label::Named);
    if steering.queue_count >= u32::from(steering.owner_count) {
        // The device has distributed the load already, and each queue stays with one worker.
        code.put(MOVE_REGISTER, R7, R8, 0, 0);
    } else {
        code.put(CALL, 0, 0, 0, CALL_RANDOM);
        code.put(MOVE_REGISTER, R7, R0, 0, 0);
    }
    // Modulo takes all 64 bits; both are 32.
    code.jump(JUMP, 0, 0, 0, Label::Named);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(address: &str, worker_count: u16, queue_count: u32) {
        let address = address.parse().unwrap();
        let owner_count = worker_count;
        let steering = Steering { address, worker_count, owner_count, queue_count, map: 7 };
        let program = program(&steering);
        assert!(program.len() < 60, "{} instructions", program.len());
        for (place, instruction) in program.iter().enumerate() {
            let is_jump = [5, 6].contains(&(instruction.operation & 7))
                && ![CALL, EXIT].contains(&instruction.operation);
            if is_jump {
                let target = place as i64 + 1 + i64::from(instruction.offset);
                assert!((place as i64 + 1..program.len() as i64).contains(&target), "at {place}");
            }
        }
        assert_eq!(program.last().unwrap().operation, EXIT);
    }

    #[test]
    fn jumps_lead_forward_and_stay_inside() {
        check("10.0.0.1:7379", 4, 1);
        check("10.0.0.1:7379", 2, 2);
        check("[fd00::1]:7379", 4, 1);
    }
}
