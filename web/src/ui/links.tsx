import { Anchor, Button, type AnchorProps, type ButtonProps } from "@mantine/core";
import { createLink } from "@tanstack/react-router";
import type { ComponentPropsWithRef } from "react";

type Native = Omit<ComponentPropsWithRef<"a">, keyof ButtonProps>;

/** A button that is a link to a page; `to`, `params` and `search` are checked. */
export const LinkButton = createLink((props: ButtonProps & Native) => <Button component="a" {...props} />);

type NativeAnchor = Omit<ComponentPropsWithRef<"a">, keyof AnchorProps>;

/** A text link to a page; `to`, `params` and `search` are checked. */
export const LinkAnchor = createLink((props: AnchorProps & NativeAnchor) => <Anchor {...props} />);
