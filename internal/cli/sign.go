package cli

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/urfave/cli/v3"
	"golang.org/x/crypto/ssh"

	"github.com/muster-dev/muster"
	"github.com/muster-dev/muster/internal/cli/app"
	"github.com/muster-dev/muster/internal/cli/term"
	"github.com/muster-dev/muster/internal/client"
	"github.com/muster-dev/muster/internal/signedjob"
	"github.com/muster-dev/muster/internal/sshsig"
)

// signOptions says how jobs are signed for workers that require it.
type signOptions struct {
	key string // a file; "" for no signature
	ttl muster.Duration

	sameAs ssh.PublicKey // the only key that may sign; nil for any
}

func newSignOptions() signOptions { return signOptions{ttl: muster.Duration(signedjob.DefaultTTL)} }

func (o *signOptions) flags(group string) []cli.Flag {
	return []cli.Flag{
		app.Option{Name: "sign", Value: "path", Usage: "Sign the job with this SSH key, for workers with --trust-keys: a private key, or a public one whose private key ssh-agent has", Group: group}.WithEnv().StringVar(&o.key),
		app.Option{Name: "sign-ttl", Usage: "Time until the signature expires: tasks do not start later on such workers; 90 days at most", Group: group}.DurationVar(&o.ttl),
	}
}

// signer signs the jobs of one command.
type signer struct {
	key ssh.Signer
	ttl time.Duration
}

// openSigner returns the signer of the options, nil if jobs are not signed, and a function that releases it. It may ask for a passphrase.
func (a *runner) openSigner(ctx context.Context, o signOptions, server *client.Client, docs []document) (*signer, func(), error) {
	if o.key == "" {
		return nil, func() {}, nil
	}
	if o.ttl <= 0 || o.ttl > muster.Duration(signedjob.MaxTTL) {
		return nil, nil, muster.Errorf(muster.Invalid, "--sign-ttl must be more than 0 and at most %s", muster.Duration(signedjob.MaxTTL))
	}
	s := &signer{ttl: o.ttl.Std()}
	for _, doc := range docs {
		if fields := signedjob.Check(doc.spec.Normalize()); len(fields) > 0 {
			return nil, nil, a.locateErrors(ctx, doc, "cannot sign", &muster.Error{Code: muster.InvalidSpec, Message: "the job cannot be signed", Fields: fields})
		}
	}
	if slices.ContainsFunc(docs, func(doc document) bool { return doc.spec.Project == "" }) {
		who, err := server.Whoami(ctx)
		if err != nil {
			return nil, nil, err
		}
		if p := cmp.Or(who.Project, muster.DefaultProject); p != muster.DefaultProject { // the server does not choose what is signed
			return nil, nil, muster.Errorf(muster.Invalid, "--sign: the job names no project, and the server would use %s, that of the API key: set project in the spec, or --project with muster run", muster.Truncate(p))
		}
	}
	key, release, err := sshsig.OpenSigner(ctx, o.key, func(prompt string) (string, error) { return term.ReadSecret(ctx, a.Err, prompt) })
	if err != nil {
		return nil, nil, muster.Errorf(muster.Invalid, "--sign: %w", err)
	}
	if o.sameAs != nil && !bytes.Equal(o.sameAs.Marshal(), key.PublicKey().Marshal()) {
		release()
		return nil, nil, muster.Errorf(muster.Forbidden, "the job was signed with the key %s, and --sign has %s: submit the file of the job to sign it with another key",
			sshsig.Fingerprint(o.sameAs), sshsig.Fingerprint(key.PublicKey()))
	}
	s.key = key
	return s, release, nil
}

// sign signs a spec whose files are uploaded. A nil signer leaves it as it is.
func (s *signer) sign(spec *muster.Spec) (err error) {
	if s == nil {
		return nil
	}
	if spec.Project == "" {
		spec.Project = muster.DefaultProject
	}
	spec.Signature, err = signedjob.Sign(s.key, spec, time.Now(), s.ttl)
	return err
}
