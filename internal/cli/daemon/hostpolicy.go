package daemon

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent/hostpolicy"
	"github.com/muster-dev/muster/internal/cli/app"
)

// hostPolicyOptions is how a worker shares its machine with the owner.
type hostPolicyOptions struct{ hostpolicy.Options }

func newHostPolicyOptions() hostPolicyOptions {
	return hostPolicyOptions{hostpolicy.Options{AfterHours: hostpolicy.Finish}}
}

func (s *hostPolicyOptions) flags(group string) []cli.Flag {
	option := func(name, usage string) app.Option {
		return app.Option{Name: name, Usage: usage, Group: group}.WithEnv()
	}
	return []cli.Flag{
		app.Var(option("profile", "share the machine as it suits tasks of this `SORT`: benchmark, test or light; other options beat it"),
			&s.Profile, hostpolicy.ParseProfile, func(p string) string { return p }),
		percentVar(option("max-cpu-percent", "take nothing new while more than this `PERCENT` of the host's cores is busy"), &s.MaxCPU),
		percentVar(option("max-memory-percent", "take nothing new while more than this `PERCENT` of the host's memory is in use"), &s.MaxMemory),
		percentVar(option("max-gpu-percent", "take nothing new while the GPUs compute more than this `PERCENT` of the time"), &s.MaxGPU),
		app.Var(option("memory-buffer", "keep this `SHARE` of the host's memory free, such as 0.2: offer less, and take nothing new while less is free"),
			&s.MemoryBuffer, parseFraction, formatOptional[float64]),
		app.Var(option("min-free-disk", "take nothing new while less than this `SIZE` of the data dir's disk is free; 0 means no limit (default: 1GiB, or 5% of a smaller disk)"),
			&s.MinFreeDisk, parseFreeDisk, formatOptional),
		app.Var(option("cool-down", "take tasks again when this `DURATION` was quiet (default: 30s)"),
			&s.CoolDown, parseCoolDown, formatOptional),
		app.Var(option("hours", `take tasks only at these `+"`TIMES`"+` of the week, such as "mon-fri 18:00-08:00, sat, sun"`),
			&s.Hours, hostpolicy.ParseHours, formatHours),
		option("hours-then", "what running tasks do when the hours end, `finish` or preempt").EnumVar(&s.AfterHours, hostpolicy.Finish, hostpolicy.Preempt),
		option("yield-to-owner", "freeze or move tasks whose GPU the owner's own programs use").BoolVar(&s.Yield),
	}
}

// percentVar is a number over 0 and up to 100.
func percentVar(o app.Option, dst **float64) cli.Flag {
	return app.Var(o, dst, func(s string) (*float64, error) {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || !(f > 0 && f <= 100) {
			return nil, errors.New("write a percentage over 0 and up to 100, such as 80")
		}
		return &f, nil
	}, formatOptional)
}

func parseFraction(s string) (*float64, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f >= 0 && f < 1) || math.Signbit(f) {
		return nil, errors.New("write a share from 0 to below 1, such as 0.2 for a fifth")
	}
	return &f, nil
}

func parseFreeDisk(s string) (*muster.Size, error) {
	n, err := muster.ParseSize(s)
	if err == nil && n < 0 {
		err = errors.New("write a size such as 2GiB, or 0 for no limit")
	}
	return &n, err
}

func parseCoolDown(s string) (*muster.Duration, error) {
	d, err := muster.ParseDuration(s)
	return &d, err
}

// formatOptional shows what was said, and nothing if nothing was.
func formatOptional[T any](v *T) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(*v)
}

func formatHours(h *hostpolicy.Hours) string {
	if h == nil {
		return ""
	}
	return h.String()
}
