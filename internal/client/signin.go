package client

import (
	"context"

	"github.com/muster-dev/muster/internal/api/wire"
)

type (
	// SignIn describes how users sign in other than with an API key.
	SignIn = wire.SignIn
	// DeviceSignIn is a sign-in that the user completes in any browser.
	DeviceSignIn = wire.DeviceSignIn
	// DeviceResult is the key of a user who has signed in.
	DeviceResult = wire.DeviceResult
)

// SignIn returns how users sign in. It needs no key.
func (c *Client) SignIn(ctx context.Context) (SignIn, error) {
	return get[SignIn](ctx, c, "/oidc", nil)
}

// BeginDeviceSignIn starts a sign-in that the user completes in any browser. It needs no key.
func (c *Client) BeginDeviceSignIn(ctx context.Context) (DeviceSignIn, error) {
	return post[DeviceSignIn](ctx, c, "/oidc/device", nil, false)
}

// FinishDeviceSignIn asks once whether the user has signed in. It needs no key.
func (c *Client) FinishDeviceSignIn(ctx context.Context, device string) (DeviceResult, error) {
	return post[DeviceResult](ctx, c, "/oidc/device/token", wire.DeviceHandle{Device: device}, false)
}
