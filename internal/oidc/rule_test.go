package oidc

import "testing"

func TestMatches(t *testing.T) {
	t.Parallel()
	claims := map[string]any{
		"email": "ann@lab.example", "email_verified": true, "groups": []any{"staff", "ml-admins", []any{"nested"}, map[string]any{"a": "b"}, 7.0}, "hd": "lab.example", "admin": true, "object": map[string]any{"a": "staff"}, "empty": "",
	}
	for rule, want := range map[Rule]bool{
		{Claim: "email", Pattern: "ann@lab.example"}: true, {Claim: "email", Pattern: "*@lab.example"}: true, {Claim: "email", Pattern: "*"}: true, {Claim: "email", Pattern: "a*@*.example"}: true,
		{Claim: "email", Pattern: "lab.example"}: false, {Claim: "email", Pattern: "*@lab"}: false, {Claim: "email", Pattern: "ann@lab.example*x"}: false, {Claim: "email", Pattern: "ann@lab.example.evil"}: false,
		{Claim: "groups", Pattern: "staff"}: true, {Claim: "groups", Pattern: "ml-*"}: true, {Claim: "groups", Pattern: "7"}: true, {Claim: "groups", Pattern: "nested"}: false, {Claim: "groups", Pattern: "b"}: false,
		{Claim: "admin", Pattern: "true"}: true, {Claim: "object", Pattern: "*"}: false, {Claim: "absent", Pattern: "*"}: false, {Claim: "empty", Pattern: "*"}: true,
	} {
		if got := rule.matches(claims); got != want {
			t.Errorf("%s: %v, want %v", rule, got, want)
		}
	}
	for _, verified := range []any{false, "true", nil} {
		claims["email_verified"] = verified
		if (Rule{Claim: "email", Pattern: "*"}).matches(claims) {
			t.Errorf("an email with email_verified %v counts", verified)
		}
	}
}

func TestMatchPattern(t *testing.T) {
	t.Parallel()
	for pattern, texts := range map[string][2]string{"a*a": {"aba", "a"}, "**": {"", "\x00"}, "a*b*c": {"abbc", "acb"}, "*x": {"xx", "xy"}} {
		if !matchPattern(pattern, texts[0]) || pattern != "**" && matchPattern(pattern, texts[1]) {
			t.Errorf("%q, %q", pattern, texts)
		}
	}
}

func TestPlainNames(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{"ann@lab.example": "ann@lab.example", "a/b\x1b[2J": "a_b_[2J", "": "user", "   ": "user", "Änn": "_nn"} {
		if got := plain(s); got != want {
			t.Errorf("%q is %q", s, got)
		}
	}
}
