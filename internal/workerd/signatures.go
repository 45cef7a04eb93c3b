package workerd

import (
	"os"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/agent"
	"github.com/muster-dev/muster/internal/agent/run/kinds"
	"github.com/muster-dev/muster/internal/kind"
	"github.com/muster-dev/muster/internal/signedjob"
	"github.com/muster-dev/muster/internal/sshsig"
)

// maxTrustFile is the most bytes of a file of trusted keys, maxTrustedKeys the most keys: each answer that lists workers has them.
const (
	maxTrustFile   = 1 << 20
	maxTrustedKeys = 200
)

// readTrustedKeys reads the file TrustKeys, if one is set, and requires signatures by its keys.
func (c *Config) readTrustedKeys() error {
	if c.TrustKeys == "" {
		return nil
	}
	data, err := os.ReadFile(c.TrustKeys)
	if err != nil {
		return muster.Errorf(muster.Invalid, "--trust-keys: %w", err)
	}
	if len(data) > maxTrustFile {
		return muster.Errorf(muster.Invalid, "--trust-keys: %s has more than %d bytes", c.TrustKeys, maxTrustFile)
	}
	keys, err := sshsig.ParseTrusted(data, signedjob.Namespace)
	switch {
	case err != nil:
		return muster.Errorf(muster.Invalid, "--trust-keys: %s: %w", c.TrustKeys, err)
	case len(keys) == 0:
		return muster.Errorf(muster.Invalid, "--trust-keys: %s has no keys for the namespace %s: add public keys, such as the content of ~/.ssh/id_ed25519.pub", c.TrustKeys, signedjob.Namespace)
	case len(keys) > maxTrustedKeys:
		return muster.Errorf(muster.Invalid, "--trust-keys: %s has %d keys, the most is %d", c.TrustKeys, len(keys), maxTrustedKeys)
	}
	c.trusted, c.Allow.SignedBy = keys, nil
	for i := range keys {
		c.Allow.SignedBy = append(c.Allow.SignedBy, sshsig.Fingerprint(keys[i].Key))
	}
	return nil
}

// signatures returns what verifies the signatures of jobs on the worker with this name, nil if the owner requires none.
func (w *Worker) signatures(reports *agent.ReportStore, name string) agent.Signatures {
	if w.cfg.trusted == nil {
		return nil
	}
	own, _ := kinds.Load(w.cfg.AI.Kinds) // newExecutors reports errors
	return signedjob.NewVerifier(signedjob.Config{Keys: w.cfg.trusted, Kinds: kind.NewCatalog(kinds.Definitions(own)...), Jobs: reports, Worker: name})
}
