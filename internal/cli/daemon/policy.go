package daemon

import (
	"errors"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/policy"
	"github.com/muster-dev/muster/internal/workerd"
)

// policyOptions is what a worker's owner lets tasks have.
type policyOptions struct {
	muster.Allow
	kinds []string
}

func (c *policyOptions) flags(group string) []cli.Flag {
	option := func(name, usage string) app.Option {
		return app.Option{Name: name, Usage: usage, Group: group}.WithEnv()
	}
	return []cli.Flag{
		policyListVar(option("allow-kinds", "take only these `KINDS` of tasks, such as process,inference (default: all)"), &c.kinds, workerd.ParseKind),
		policyListVar(option("allow-images", "let containers have only these `IMAGES`, in which * stands for any text, such as 'ghcr.io/acme/*' (default: all)"), &c.Images, policy.ParseImage),
		policyListVar(option("allow-users", "let containers run only as these `USERS`, such as 1000:1000, or default for the image's own (default: all)"), &c.Users, policy.ParseUser),
		policyListVar(option("allow-mounts", "let containers have these `FOLDERS` of the machine, with :ro for reading only, such as /data:ro (default: none)"), &c.Mounts, policy.ParseMount),
		policyListVar(option("allow-env", "let tasks set only these `VARIABLES`, in which * stands for any text, such as 'HF_*' (default: all)"), &c.Env, policy.ParseVariable),
		option("allow-host-network", "let containers have the machine's own network").BoolVar(&c.HostNetwork),
	}
}

// policyListVar is a list of an owner's: it may be given several times, and with commas. An item that is none,
// alone, makes it empty.
func policyListVar(o app.Option, dst *[]string, parse func(string) (string, error)) cli.Flag {
	return app.Var(o, dst, func(s string) ([]string, error) {
		if s == policy.NoneKeyword {
			return []string{}, nil
		}
		all := *dst
		for part := range strings.SplitSeq(s, ",") {
			if part = strings.TrimSpace(part); part == "" {
				return nil, errors.New("an item of the list is empty: write " + policy.NoneKeyword + " to allow nothing")
			}
			item, err := parse(part)
			if err != nil {
				return nil, err
			}
			all = append(all, item)
		}
		return all, nil
	}, func(all []string) string { return strings.Join(all, ",") })
}
