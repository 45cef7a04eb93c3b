package seccomp

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/moby/profiles/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// TestProgramsDecideAsTheProfile compares what the programs decide, run by another implementation of BPF, with the profile itself: about all
// numbers, each with arguments at and beside the values that the profile compares.
func TestProgramsDecideAsTheProfile(t *testing.T) {
	args := []uint64{0, 1, math.MaxUint32, math.MaxUint64, 1 << 32, 1<<32 | unix.AF_INET}
	for _, r := range seccomp.DefaultProfile().Syscalls {
		for _, a := range r.Args {
			args = append(args, a.Value-1, a.Value, a.Value+1)
		}
	}
	for bit := range 64 {
		args = append(args, 1<<bit, 1<<bit|uint64(unix.SIGCHLD))
	}
	slices.Sort(args)
	args = slices.Compact(args)
	for _, target := range targets {
		program, err := target.program()
		if err != nil {
			t.Fatal(err)
		}
		vm := newVM(t, program)
		rules := target.rules(seccomp.DefaultProfile())
		for _, a := range target.archs {
			last := 0
			for name, nr := range a.SyscallNames {
				if nr < privateCalls && slices.ContainsFunc(rules, func(r specs.LinuxSyscall) bool { return slices.Contains(r.Names, name) }) {
					last = max(last, nr)
				}
			}
			for nr := range 1024 {
				for _, v := range args {
					want := reference(rules, a.SyscallNumbers[nr], v)
					if nr > last {
						want = "ENOSYS"
					}
					if got := vm.decide(t, uint32(a.ID), uint32(nr), v); got != want {
						t.Fatalf("%s: call %d (%s) with %#x: %s, want %s", a.Name, nr, a.SyscallNumbers[nr], v, got, want)
					}
				}
			}
			for name, want := range map[string]string{"read": "allow", "keyctl": "EPERM", "mount": "EPERM", "clone3": "ENOSYS", "mbind": "allow", "pidfd_getfd": "allow"} {
				if got := vm.decide(t, uint32(a.ID), uint32(a.SyscallNames[name]), 0); got != want {
					t.Errorf("%s: %s: %s, want %s", a.Name, name, got, want)
				}
			}
		}
		if got := vm.decide(t, uint32(target.archs[0].ID), 1<<30|uint32(target.archs[0].SyscallNames["read"]), 0); got != "ENOSYS" {
			t.Errorf("%s: a call of x32: %s", target.goarch, got)
		}
		if got := vm.decide(t, 0x80000016, 3, 0); got != "EPERM" {
			t.Errorf("%s: a call of another architecture: %s", target.goarch, got)
		}
		if n := len(program); n > 600 {
			t.Errorf("%s: the program has %d instructions", target.goarch, n)
		}
	}
}

// reference decides about a call as seccomp(2) and the runtime's specification say, rule by rule.
func reference(rules []specs.LinuxSyscall, name string, arg uint64) string {
	decision := "EPERM"
	for _, r := range rules {
		if !slices.Contains(r.Names, name) {
			continue
		}
		match := true
		for _, a := range r.Args {
			switch a.Op {
			case specs.OpEqualTo:
				match = match && arg == a.Value
			case specs.OpLessThan:
				match = match && arg < a.Value
			case specs.OpMaskedEqual:
				match = match && arg&a.Value == a.ValueTwo
			default:
				match = false
			}
		}
		switch {
		case match && r.Action == specs.ActAllow:
			return "allow"
		case match:
			decision = "ENOSYS"
		}
	}
	return decision
}

type vm struct{ *bpf.VM }

func newVM(t *testing.T, program []instruction) vm {
	t.Helper()
	var list []bpf.Instruction
	for _, in := range program {
		list = append(list, in.Disassemble())
	}
	machine, err := bpf.NewVM(list)
	if err != nil {
		t.Fatal(err)
	}
	return vm{machine}
}

// decide runs the program with an argument in all places.
func (m vm) decide(t *testing.T, arch, nr uint32, arg uint64) string {
	t.Helper()
	data := binary.BigEndian.AppendUint32(nil, nr) // the machine loads words in the order of networks
	data = binary.BigEndian.AppendUint32(data, arch)
	data = append(data, make([]byte, 8)...)
	for range 6 {
		data = binary.BigEndian.AppendUint32(data, uint32(arg))
		data = binary.BigEndian.AppendUint32(data, uint32(arg>>32))
	}
	got, err := m.Run(data)
	if err != nil {
		t.Fatal(err)
	}
	switch uint32(got) {
	case retAllow:
		return "allow"
	case errno(uint(unix.EPERM)):
		return "EPERM"
	case errno(uint(unix.ENOSYS)):
		return "ENOSYS"
	}
	return fmt.Sprintf("%#x", got)
}
