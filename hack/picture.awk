# A picture of what the demo printed: awk -f hack/picture.awk. Headings and commands stand out; of long output the first lines are shown.
function escaped(text) { gsub(/&/, "\\&amp;", text); gsub(/</, "\\&lt;", text); gsub(/>/, "\\&gt;", text); return text }
function add(text, class) { lines[++count] = sprintf("<text class=\"%s\" x=\"16\" y=\"%d\">%s</text>", class, 28 + 17 * count, escaped(substr(text, 1, 130))) }
{ gsub(/\r|\033\[[0-9;]*[A-Za-z]|\033\(B/, "") }
/^#/ { shown = 0; if (count) count++; add($0, "said"); next }
/^\$/ { shown = 0; add($0, "typed"); next }
/^$/ { next }
++shown <= 6 { add($0, "printed") }
shown == 7 { add("…", "printed") }
END {
  printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"1080\" height=\"%d\" font-family=\"monospace\" font-size=\"13\">\n", 60 + 17 * count
  print "<style>.said { fill: #7dd3fc; font-weight: bold } .typed { fill: #fde68a } .printed { fill: #e5e7eb } text { white-space: pre }</style>"
  print "<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#111827\"/>"
  for (line = 1; line <= count; line++) if (line in lines) print lines[line]
  print "</svg>"
}
