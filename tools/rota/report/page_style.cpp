#include "report/page.h"

namespace rota::tool {

// Colours c1 to c7 are told apart by people who see fewer colours, too, and have 3:1 to the paper.
const char* const kPageStyle = R"(
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1b1f24; --soft: #59616b; --rule: #d5dae0; --grid: #e6e9ed; --panel: #f6f8fa;
  --warn-paper: #fff4d6; --warn-rule: #b57b00; --limit: #b3261e;
  --c0: #4a5058; --c1: #0072b2; --c2: #c85200; --c3: #00805c; --c4: #a8438a; --c5: #9a6f00; --c6: #2b93cf; --c7: #6a51a3;
  --h0: #f4f8fc; --h1: #e3eef8; --h2: #d0e3f3; --h3: #b8d5ec; --h4: #9cc5e4; --h5: #7fb3da; --h6: #64a1cf; --h7: #4a90c3;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #14171b; --ink: #e7eaee; --soft: #a3acb7; --rule: #3a424c; --grid: #2a3038; --panel: #1b2026;
    --warn-paper: #3a2f12; --warn-rule: #d9a521; --limit: #ff8a80;
    --c0: #b8c0ca; --c1: #56b4e9; --c2: #ff9147; --c3: #2fc79a; --c4: #e58cc6; --c5: #e3b505; --c6: #9ccbff; --c7: #b9a5f0;
    --h0: #1a2027; --h1: #1b2a38; --h2: #1c3448; --h3: #1d3f5a; --h4: #1e4a6c; --h5: #20567f; --h6: #226393; --h7: #2570a8;
  }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 76rem; padding: 1rem 1rem 3rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.2; margin: 0 0 .4rem; }
h2 { font-size: 1.25rem; margin: 2rem 0 .4rem; padding-top: .5rem; border-top: 2px solid var(--rule); }
#summary > h2 { font-size: 1.1rem; margin: 1.2rem 0 .2rem; border: 0; padding: 0; }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .2rem; }
p { margin: .2rem 0 .6rem; max-width: 60rem; }
a { color: var(--c1); }
code { font: .86em/1.4 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; }
.soft, .common, .more, .kind > p { color: var(--soft); }
nav ul { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; padding: 0; margin: .6rem 0 0; }
.lede { margin: .3rem 0 .4rem; max-width: none; }
.findings { margin: .5rem 0; padding-left: 1.2rem; max-width: 60rem; }
.findings li { margin: .3rem 0; }
.warning { margin: .4rem 0; padding: .3rem .7rem; max-width: none; font-size: .92rem; border-left: 4px solid var(--warn-rule); background: var(--warn-paper); color: var(--ink); }
.origin { margin: .9rem 0; padding: .7rem .9rem; background: var(--panel); border: 1px solid var(--rule); border-radius: 6px; }
.origin dl { display: grid; grid-template-columns: max-content 1fr; gap: .1rem .9rem; margin: .3rem 0 0; font-size: .9rem; }
.origin dt { color: var(--soft); }
.origin dd { margin: 0; }
.panels, .kinds { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 23rem), 1fr)); gap: 1rem 1.4rem; align-items: start; }
.kinds { row-gap: 0; }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 23rem), 27rem)); gap: 0 3rem; }
.kind { min-width: 0; }
.kind.many { grid-column: 1 / -1; }
figure { margin: .4rem 0; min-width: 0; }
figcaption { font-weight: 600; font-size: .92rem; margin: 0 0 .2rem; }
.chart { display: block; width: 100%; max-width: 28rem; height: auto; }
.chart text { font: 12.5px system-ui, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif; fill: var(--ink);
  font-variant-numeric: tabular-nums; }
.chart .tick, .chart .name { fill: var(--soft); }
.chart .group { font-weight: 600; }
.chart .value, .chart .name, .chart .group { paint-order: stroke; stroke: var(--paper); stroke-width: 3px; stroke-linejoin: round; }
.chart .axis { stroke: var(--soft); }
.chart .grid { stroke: var(--grid); }
.chart .line { fill: none; stroke: currentColor; stroke-width: 1.8; stroke-linejoin: round; }
.chart .mark { fill: currentColor; stroke: currentColor; stroke-width: 1.2; }
.chart .bar { fill: currentColor; stroke: currentColor; fill-opacity: .85; }
.chart .mark.hollow { fill: var(--paper); }
.chart .bar.hollow { fill-opacity: .15; stroke-dasharray: 3 2; }
.chart .level { stroke: currentColor; stroke-width: 2; }
.chart .whisker { stroke: currentColor; stroke-opacity: .7; }
.chart .whisker.over { stroke: var(--ink); }
.chart .leader { stroke: var(--soft); stroke-width: .8; }
.chart .limit { stroke: var(--limit); stroke-width: 1.5; stroke-dasharray: 5 3; }
.chart .limit-name { fill: var(--limit); }
.c0 { color: var(--c0); } .c1 { color: var(--c1); } .c2 { color: var(--c2); } .c3 { color: var(--c3); }
.c4 { color: var(--c4); } .c5 { color: var(--c5); } .c6 { color: var(--c6); } .c7 { color: var(--c7); }
.scroll { overflow-x: auto; margin: .5rem 0 1rem; }
table { border-collapse: collapse; font-size: .84rem; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
th, td { padding: .22rem .55rem; border-bottom: 1px solid var(--rule); text-align: left; white-space: nowrap; }
thead th { border-bottom: 2px solid var(--rule); vertical-align: bottom; }
tbody tr:nth-child(even) { background: var(--panel); }
.r { text-align: right; }
.best td { font-weight: 600; }
.main { font-size: .9rem; line-height: 1.3; min-width: min(100%, 40rem); }
.main th { white-space: normal; }
.main th, .main td { padding: .16rem .5rem; }
.scroll:has(.main) { margin: .3rem 0 0; }
.note { color: var(--soft); font-size: .86rem; margin: .2rem 0 .3rem; max-width: none; }
.heats { display: flex; flex-wrap: wrap; gap: 0 1.4rem; }
.heats > * { min-width: 0; max-width: 100%; }
.heat td { text-align: right; border: 1px solid var(--paper); }
.heat caption { text-align: left; font-weight: 600; padding: 0 0 .4rem; }
.h0 { background: var(--h0); } .h1 { background: var(--h1); } .h2 { background: var(--h2); } .h3 { background: var(--h3); }
.h4 { background: var(--h4); } .h5 { background: var(--h5); } .h6 { background: var(--h6); } .h7 { background: var(--h7); }
footer { margin-top: 3rem; color: var(--soft); font-size: .85rem; }
@media screen and (max-width: 480px) {
  .main { font-size: .8rem; }
  .main th, .main td { padding: .2rem .17rem; }
  .main .wide { display: none; }
  .heat { font-size: .72rem; }
  .heat th, .heat td { padding: .2rem .16rem; }
  .origin dl { display: block; }
  .chart text { font-size: 13px; }
}
@page { margin: 14mm; }
@media print {
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  nav { display: none; }
  h2, h3, figcaption { break-after: avoid; }
  .common, .note, .kind > p { break-after: avoid; }
  p, figure, .origin, .heat, tr, .findings li, .kind:not(.many) { break-inside: avoid; }
  .scroll { overflow: visible; }
  .kinds { grid-template-columns: 1fr 1fr; gap: .6rem 1rem; }
  .many .panels { display: block; }
  .many figure { display: inline-block; width: 48%; margin: .3rem 1% .3rem 0; vertical-align: top; }
  .tables { break-before: page; }
  table { font-size: 6.5pt; }
  .heat { font-size: 7.5pt; }
  th, td { padding: 1.5pt 3pt; }
}
)";

}  // namespace rota::tool
