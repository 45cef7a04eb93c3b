// Package xid reads the faults that NVIDIA's driver writes to the kernel's log.
//
// Each has a number (XID); see https://docs.nvidia.com/deploy/xid-errors. Only faults after which the device must be reset or replaced
// count. Root and processes with CAP_SYSLOG can read the log; without the driver's library there is no other source of XIDs.
package xid

import (
	"strconv"
	"strings"
	"time"

	"github.com/muster-dev/muster/internal/lazyregexp"
)

// fatal are the XIDs after which the device must be reset or replaced according to the catalog. Most others are the fault of the program
// that ran: 13, 31, 43, 45, 68, 109 among them.
var fatal = map[int]bool{
	46: true, 48: true, 54: true, 62: true, 64: true, 74: true, 79: true, 95: true,
	110: true, 119: true, 120: true, 140: true, 143: true, 154: true,
}

// FaultTTL is how long a fault from the log counts. The log does not report that a device is healthy again; one that is not repeats its
// fault or does not respond.
const FaultTTL = 10 * time.Minute

// Fault is a fault in the kernel's log.
type Fault struct {
	Reason string // such as "XID 79: GPU has fallen off the bus"

	bus      string // without the function: 0000:3b:00
	instance string // the GPU instance of a MIG device, or ""
}

var (
	xidLine    = lazyregexp.New(`NVRM: Xid \(PCI:([0-9a-fA-F:]+)(?:\.\d)?(?: GPU-I:0*(\d+))?\): (\d+), (.*)`)
	xidProcess = lazyregexp.New(`^(pid=[^,]*, )?(name=[^,]*, )?`)
	fellOffBus = lazyregexp.New(`NVRM: (?:The NVIDIA )?GPU (?:at )?(?:PCI:)?([0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2})(?:\.\d)?:? .*fallen off the bus`)
	maxReason  = 200
)

// Parse parses a message of the kernel's log. It reports false if that is not such a fault.
func Parse(message string) (x Fault, ok bool) {
	if m := fellOffBus.Get().FindStringSubmatch(message); m != nil {
		return Fault{bus: strings.ToLower(m[1]), Reason: "XID 79: GPU has fallen off the bus"}, true
	}
	m := xidLine.Get().FindStringSubmatch(message)
	if m == nil {
		return x, false
	}
	n, err := strconv.Atoi(m[3])
	reason := strings.TrimRight(strings.TrimSpace(xidProcess.Get().ReplaceAllString(m[4], "")), ".")
	if err != nil || !fatal[n] || n == 154 && strings.HasSuffix(reason, "(None)") {
		return x, false
	}
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "") + "…"
	}
	return Fault{bus: strings.ToLower(m[1]), instance: m[2], Reason: "XID " + m[3] + ": " + reason}, true
}

// Matches reports whether a fault is one of the device at a PCI address, such as 0000:3b:00.0, or of one of its MIG instances, such
// as 1/0 (else ""). A fault of one instance does not match the others.
func (x *Fault) Matches(bus, instance string) bool {
	gi, _, _ := strings.Cut(instance, "/")
	return bus != "" && strings.HasPrefix(bus, x.bus+".") && (x.instance == "" || instance == "" || gi == x.instance)
}
