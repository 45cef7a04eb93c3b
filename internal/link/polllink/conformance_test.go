package polllink_test

import (
	"context"
	"net/http"
	"testing"

	"github.com/muster-dev/muster/internal/link"
	"github.com/muster-dev/muster/internal/link/linktest"
	"github.com/muster-dev/muster/internal/link/polllink"
)

func transport() linktest.Transport {
	return linktest.Transport{
		NewServer: func(identify link.Identify, accept link.Accept) (http.Handler, func(context.Context) error) {
			s := polllink.NewServer(identify, accept)
			return s, s.Run
		},
		Path: link.PathPoll,
		NewExecServer: func(identify link.Identify, accept link.AcceptFrames) (http.Handler, func(context.Context) error) {
			s := polllink.NewFrameServer(identify, accept, 4)
			return s, s.Run
		},
		ExecPath: link.PathExecPoll,
		NewDialer: func(server string, c link.Credentials) link.Dialer {
			return &polllink.Dialer{Server: server, Credentials: c, HTTP: &http.Client{Transport: &http.Transport{}}}
		},
	}
}

func TestContract(t *testing.T) { linktest.Run(t, transport()) }

func BenchmarkLink(b *testing.B) { linktest.Bench(b, transport()) }
