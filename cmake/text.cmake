# Run by plasmon_text(): FILES into OUT, a C file with the function SYMBOL.
set(hex "")
foreach(file IN LISTS FILES)
  file(READ ${file} one HEX)
  string(APPEND hex ${one})
endforeach()
string(REGEX REPLACE "(................................)" "\\1\n    " hex "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," hex "${hex}")
file(WRITE ${OUT} "const char *${SYMBOL}(void);

static const char text[] = {
    ${hex}0};

const char *${SYMBOL}(void)
{
    return text;
}
")
