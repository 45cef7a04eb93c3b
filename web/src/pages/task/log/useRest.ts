import { useLayoutEffect, useState, type RefObject } from "react";

/** Pixels below the log that its own footer and the page's margin take. */
const below = 48;
const least = 360;

/** The height that reaches to the bottom of the window or, where little of it is left, one that fills most of it. */
export function useRest(element: RefObject<HTMLElement | null>): number {
  const [height, setHeight] = useState(420);
  useLayoutEffect(() => {
    const measure = () => {
      const top = element.current ? element.current.getBoundingClientRect().top + window.scrollY : 0;
      const rest = window.innerHeight - top - below;
      setHeight(Math.round(rest >= least ? rest : Math.max(least, window.innerHeight - 240)));
    };
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(document.body);
    window.addEventListener("resize", measure);
    return () => {
      observer.disconnect();
      window.removeEventListener("resize", measure);
    };
  }, [element]);
  return height;
}
