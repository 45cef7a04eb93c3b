package seccomp

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"golang.org/x/net/bpf"
)

// Offsets in the kernel's struct seccomp_data; see seccomp(2). The machines of all generated filters are little-endian.
const (
	nrOffset   = 0
	archOffset = 4
	argsOffset = 16
	argSize    = 8
	highHalf   = 4
)

// op is how a condition compares an argument.
type op int

const (
	equal  op = iota // with value
	less             // than value
	zeroOf           // the bits of value are all zero
)

// condition is a comparison of an argument of a system call with 32 bits.
type condition struct {
	arg   uint32
	op    op
	value uint32
}

// decision is what happens to a system call.
type decision struct {
	ret  uint32      // SECCOMP_RET_…, unless a condition holds
	any  []condition // the call is allowed if one of these holds: all of one argument
	mark mark
}

// mark names a decision that a filter's user may change.
type mark string

const (
	clone  mark = "clone"
	clone3 mark = "clone3"
)

// abi is the system calls of one architecture.
type abi struct {
	audit uint32 // AUDIT_ARCH_…
	calls map[uint32]decision
	last  uint32   // the largest number that the profile knows
	known decision // of other numbers up to last
	newer decision // of numbers above last
}

// instruction is one of a filter; mark is set where a user may change its K.
type instruction struct {
	bpf.RawInstruction

	mark mark
}

// Classic BPF; see linux/bpf_common.h.
const (
	loadWord    = 0x20
	jumpAlways  = 0x05
	jumpEqual   = 0x15
	jumpAtLeast = 0x35 // A >= K
	jumpAnyBit  = 0x45
	returnK     = 0x06
)

func ins(code uint16, k uint32) instruction {
	return instruction{RawInstruction: bpf.RawInstruction{Op: code, K: k}}
}

// compile returns the filter of several architectures; calls of all others return other.
func compile(abis []abi, other uint32) ([]instruction, error) {
	program := []instruction{ins(returnK, other)}
	for i := range slices.Backward(abis) {
		code, err := abis[i].compile()
		if err != nil {
			return nil, fmt.Errorf("architecture %#x: %w", abis[i].audit, err)
		}
		next := ins(jumpEqual, abis[i].audit)
		next.Jf = 1
		program = slices.Concat([]instruction{next, ins(jumpAlways, uint32(len(program)))}, program, code)
	}
	return append([]instruction{ins(loadWord, archOffset)}, program...), nil
}

// assembler writes the code of one architecture. Jumps are forward, by labels.
type assembler struct {
	code    []instruction
	targets map[int][2]label // of the comparison at an index: if it holds, and if not
	at      map[label]int
	returns map[uint32]label // that all code shares, by what they return
	err     error
}

type label int

func (a *assembler) newLabel() label {
	l := label(len(a.at))
	a.at[l] = -1
	return l
}

func (a *assembler) bind(l label) { a.at[l] = len(a.code) }

func (a *assembler) add(in instruction) { a.code = append(a.code, in) }

func (a *assembler) compare(in instruction, yes, no label) {
	a.targets[len(a.code)] = [2]label{yes, no}
	a.add(in)
}

// ret returns the label of a return.
func (a *assembler) ret(k uint32) label {
	l, ok := a.returns[k]
	if !ok {
		l = a.newLabel()
		a.returns[k] = l
	}
	return l
}

// finish writes the shared returns, and resolves the labels.
func (a *assembler) finish() ([]instruction, error) {
	for _, k := range slices.Sorted(maps.Keys(a.returns)) {
		a.bind(a.returns[k])
		a.add(ins(returnK, k))
	}
	for i, t := range a.targets {
		yes, no := a.at[t[0]]-i-1, a.at[t[1]]-i-1
		if max(yes, no) > math.MaxUint8 || min(yes, no) < 0 {
			return nil, fmt.Errorf("a jump over %d and %d instructions", yes, no)
		}
		a.code[i].Jt, a.code[i].Jf = uint8(yes), uint8(no)
	}
	return a.code, a.err
}

// segment is the values from first on, up to the next one.
type segment struct {
	first uint32
	decision
}

func (s *segment) plain() bool { return len(s.any) == 0 && s.mark == "" }

// segments returns the decisions for all numbers.
func (a *abi) segments() []segment {
	var list []segment
	add := func(first uint64, d decision) {
		s := segment{uint32(first), d}
		if n := len(list); n > 0 && s.plain() && list[n-1].plain() && list[n-1].ret == d.ret {
			return
		}
		list = append(list, s)
	}
	fill := func(from, to uint64) { // numbers that no rule names
		newer := uint64(a.last) + 1
		if from < min(to, newer) {
			add(from, a.known)
		}
		if first := max(from, newer); first < to {
			add(first, a.newer)
		}
	}
	next := uint64(0)
	for _, nr := range slices.Sorted(maps.Keys(a.calls)) {
		fill(next, uint64(nr))
		add(uint64(nr), a.calls[nr])
		next = uint64(nr) + 1
	}
	fill(next, 1<<32)
	return list
}

func (a *abi) compile() ([]instruction, error) {
	out := &assembler{targets: map[int][2]label{}, at: map[label]int{}, returns: map[uint32]label{}}
	out.add(ins(loadWord, nrOffset))
	out.search(a.segments())
	return out.finish()
}

// search writes a binary search for the value in the accumulator.
func (a *assembler) search(s []segment) {
	if len(s) == 1 {
		a.decide(s[0].decision)
		return
	}
	low, high := s[:len(s)/2], s[len(s)/2:]
	yes, no := a.labelOf(high), a.labelOf(low)
	a.compare(ins(jumpAtLeast, high[0].first), yes, no)
	for _, part := range []struct {
		segments []segment
		label
	}{{low, no}, {high, yes}} {
		if len(part.segments) > 1 || !part.segments[0].plain() {
			a.bind(part.label)
			a.search(part.segments)
		}
	}
}

func (a *assembler) labelOf(s []segment) label {
	if len(s) == 1 && s[0].plain() {
		return a.ret(s[0].ret)
	}
	return a.newLabel()
}

// decide writes the decision about a call whose number is known.
func (a *assembler) decide(d decision) {
	if len(d.any) == 0 {
		in := ins(returnK, d.ret)
		in.mark = d.mark
		a.add(in)
		return
	}
	first := d.any[0]
	values := &abi{calls: map[uint32]decision{}, last: math.MaxUint32, known: decision{ret: d.ret}}
	for _, c := range d.any {
		switch {
		case c.arg != first.arg || c.op == zeroOf && len(d.any) > 1:
			a.err = errors.New("conditions on several arguments, or a mask beside others")
		case c.op == equal:
			values.calls[c.value] = decision{ret: retAllow}
		case c.op == less:
			for v := range c.value {
				values.calls[v] = decision{ret: retAllow}
			}
		}
	}
	low := ins(loadWord, argsOffset+argSize*first.arg)
	if first.op == zeroOf {
		a.add(low)
		in := ins(jumpAnyBit, first.value)
		in.mark = d.mark
		a.compare(in, a.ret(d.ret), a.ret(retAllow))
		return
	}
	rest := a.newLabel()
	a.add(ins(loadWord, argsOffset+argSize*first.arg+highHalf))
	a.compare(ins(jumpEqual, 0), rest, a.ret(d.ret)) // the values have 32 bits
	a.bind(rest)
	a.add(low)
	a.search(values.segments())
}

// marked returns the indexes of instructions with a mark.
func marked(program []instruction, m mark) []int {
	var list []int
	for i := range program {
		if program[i].mark == m {
			list = append(list, i)
		}
	}
	slices.SortFunc(list, cmp.Compare)
	return list
}
