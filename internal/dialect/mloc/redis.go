package mloc

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/muster-dev/muster"
)

// RedisConn is a connection to the Redis database between host and workers. Its commands have deadlines, and are not
// repeated by the library: who calls them knows what may be done twice.
type RedisConn struct {
	*redis.Client
	URL string // without its password, for messages
}

// DialRedis makes a connection to a Redis database given as redis://…, rediss://… or unix://…. It does not wait for
// the server.
func DialRedis(url, name string) (*RedisConn, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, muster.Errorf(muster.Invalid, "%q is not the address of a Redis database: write one such as %s", HidePassword(url), DefaultRedis)
	}
	logging.Disable() // it would write to standard error; its errors are returned, too
	o.Protocol = 2
	o.ClientName = name
	o.DisableIdentity = true
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = 5*time.Second, 10*time.Second, 10*time.Second
	o.MaxRetries = -1
	o.DialerRetries = 1
	o.PoolSize = 8
	o.ContextTimeoutEnabled = true
	return &RedisConn{Client: redis.NewClient(o), URL: HidePassword(url)}, nil
}

// HidePassword returns a URL as it may be shown.
func HidePassword(url string) string {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		return url
	}
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		rest = rest[i+1:]
	}
	return scheme + "://" + rest
}

// Unavailable makes an error of Redis one for people; nil stays nil.
func (c *RedisConn) Unavailable(err error) error {
	if err == nil {
		return nil
	}
	return muster.Errorf(muster.Unavailable, "Redis at %s does not answer as it should: %w", c.URL, err)
}

// pingInterval is how long a subscription may be silent until it is asked whether it still lives, and then until it counts as
// broken.
const pingInterval = 10 * time.Second

// Listen subscribes to channels and calls f with each message, one after the other, until ctx ends or the connection
// breaks, which is the error. ready is called once the subscription is confirmed: what is published from then on is
// received. Messages that are published while there is no connection are lost, as Redis does it.
func (c *RedisConn) Listen(ctx context.Context, ready func(), f func(channel string, message []byte), channels ...string) error {
	sub := c.Subscribe(ctx)
	defer func() { _ = sub.Close() }()
	if err := sub.Subscribe(ctx, channels...); err != nil {
		return c.Unavailable(err)
	}
	// Receive blocks in the connection, which does not know of ctx.
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() })
	defer stop()
	confirmed, pinged := 0, false
	for {
		got, err := sub.ReceiveTimeout(ctx, pingInterval)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		netErr, isNet := errors.AsType[net.Error](err)
		switch {
		case err == nil:
			pinged = false
		case isNet && netErr.Timeout() && !pinged && confirmed == len(channels):
			if err := sub.Ping(ctx); err != nil {
				return c.Unavailable(err)
			}
			pinged = true
			continue
		default:
			return c.Unavailable(err)
		}
		switch m := got.(type) {
		case *redis.Subscription:
			if m.Kind == "subscribe" {
				confirmed++
			}
			if m.Kind == "subscribe" && confirmed == len(channels) {
				ready()
			}
		case *redis.Message:
			f(m.Channel, []byte(m.Payload))
		}
	}
}

// PublishJSON sends a message and returns how many connections received it.
func (c *RedisConn) PublishJSON(ctx context.Context, channel string, v any) (int64, error) {
	b, err := Encode(v)
	if err != nil {
		return 0, err
	}
	n, err := c.Publish(ctx, channel, b).Result()
	return n, c.Unavailable(err)
}
